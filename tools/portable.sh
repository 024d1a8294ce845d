# shellcheck shell=bash
# Sourced by bootstrap.sh. make_portable: one archive for machines without packages and network, and its test.

# Runs COMMAND in the archive's folder in a root that has nothing else: no C library, no /proc, no network. Needs no rights where
# users may have namespaces of their own.
in_empty_root() {
  unshare --map-root-user --net --root="$1" --wd=/ "${@:2}"
}

make_portable() {
  local version name folder=build/portable empty
  install_packages
  build release --target intact_portable
  version=$(build/release/tools/intact_portable --version)
  name=intact-$version-x86_64
  rm -rf "$folder"
  mkdir -p "$folder/$name"
  strip -o "$folder/$name/intact" build/release/tools/intact_portable
  cp LICENSE "$folder/$name"
  mkdir -p "$folder/$name/docs/measurements"
  cp docs/*.md docs/*.svg "$folder/$name/docs"
  cp docs/measurements/*.md "$folder/$name/docs/measurements"
  sed 's/](\([a-z_]*\.md\)/](docs\/\1/g' docs/new_cpu.md >"$folder/$name/README.md"
  tar -C "$folder" --sort=name --owner=0 --group=0 --numeric-owner --mtime="$(git log -1 --format=%cI 2>/dev/null || date -Iseconds -r CHANGELOG.md)" -c "$name" |
    gzip -n9 >"$folder/$name.tar.gz"

  say "testing the archive in an empty root"
  empty=$(mktemp -d)
  tar -C "$empty" --strip-components=1 -xf "$folder/$name.tar.gz"
  in_empty_root "$empty" /intact info
  in_empty_root "$empty" /intact verify sweep --quick
  in_empty_root "$empty" /intact bench --layer 8x64x64 --turns 10ms
  rm -r "$empty"
  ls -l "$folder/$name.tar.gz"
}
