#!/bin/sh
# Opens a report in Chromium, without a screen and without a network: wide and narrow, light and dark. checks.js checks the
# page and writes what it found into it.
#
#   browser_test.sh INTACT PLUGIN
set -eu
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "no Chromium here"
  exit 77
}
intact=$1
plugin=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
here=$(dirname "$0")

# Three targets: one that is right, one that saturates, one that crashes.
"$intact" verify --quick --target "$plugin:=any" --target "$plugin:maddubs=any" --target "$plugin:crash" \
  --report "$folder" >"$folder/out.txt" 2>"$folder/err.txt" && status=0 || status=$?
if [ "$status" -ne 1 ]; then
  cat "$folder/out.txt" "$folder/err.txt"
  echo "status $status instead of 1"
  exit 1
fi
# The same page with ten thousand failures more.
awk '/<div id="failures">/ { inside = 1 }
     inside && /<\/table>/ { for (i = 0; i < 10000; ++i) print "<tr><td>many</td><td>planted " i "</td><td>again</td></tr>"; inside = 0 }
     { print }' "$folder/report.html" >"$folder/long.html"

failed=0
check() {  # page width height scheme: dark or light
  scheme=1
  [ "$4" = light ] || scheme=0
  cat "$folder/$1.html" >"$folder/page.html"
  { echo "<script>const scheme = '$4';"; cat "$here/checks.js"; echo "</script>"; } >>"$folder/page.html"
  "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$folder/profile" \
    --window-size="$2,$3" --blink-settings="preferredColorScheme=$scheme" --virtual-time-budget=20000 \
    --host-resolver-rules='MAP * ~NOTFOUND' --dump-dom "file://$folder/page.html" >"$folder/dom.html" 2>"$folder/browser.txt" || true
  found=$(sed -n 's/.*<output id="checks">\([^<]*\)<\/output>.*/\1/p' "$folder/dom.html")
  echo "$1 $2x$3 $4: ${found:-nothing: $(tail -1 "$folder/browser.txt")}"
  [ "$found" = "all right" ] || failed=1
}
for colours in dark light; do
  check report 1280 900 "$colours"
  check report 500 900 "$colours"
done
check long 1280 900 light
exit "$failed"
