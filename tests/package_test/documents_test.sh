#!/usr/bin/env bash
# documents_test.sh PREFIX SOURCES PROGRAM...
# Checks the manual pages under PREFIX/share: they must mention each subcommand of --help, and each variable that the library in
# SOURCES reads. Links of the pages in share/intact/docs and its folder measurements must lead to installed files and to existing
# sections.
# Status 77: all is right, but there are no manual pages (help2man was not there).
set -euo pipefail

prefix=$1 sources=$2
shift 2
fail() {
  echo "documents_test: $*" >&2
  exit 1
}

check_page() {
  local page=$prefix/share/man/man1/$1.1 text word
  text=$(sed -e 's/\\f[BIR]//g' -e 's/\\-/-/g' "$page")
  while read -r word; do
    grep -qwF -e "$word" <<<"$text" || fail "$page does not mention $word"
  done < <(
    "$prefix/bin/$1" --help | sed -n '/^Subcommands:/,/^$/p' | grep -oE '^  [a-z]+' | tr -d ' '
    grep -rhoE 'getenv\("INTACT_[A-Z_]+"' "$sources"/{jit,kernels} | grep -oE 'INTACT_[A-Z_]+' | sort -u
  )
}

check_links() {
  local page link to section
  for page in "$prefix"/share/intact/docs/{,measurements/}*.md; do
    [[ -e $page ]] || fail "no pages: $page"
    while read -r link; do
      to=$(dirname "$page")/${link%%#*}
      [[ $link != '#'* ]] || to=$page
      [[ -e $to ]] || fail "$page: the link $link leads to nothing that is installed"
      [[ $link == *'#'* ]] || continue
      section=$(sed -n 's/^##* //p' "$to" | tr '[:upper:] ' '[:lower:]-' | tr -cd 'a-z0-9\n-')
      grep -qxF -e "${link#*#}" <<<"$section" || fail "$page: the link $link leads to no section"
    done < <(grep -oE '\]\([^) ]+\)' "$page" | sed 's/^](\(.*\))$/\1/' | grep -v '://')
  done
}

check_links
[[ -d $prefix/share/man/man1 ]] || exit 77
for program in "$@"; do check_page "$program"; done
