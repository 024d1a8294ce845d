# shellcheck shell=bash
# Sourced by bootstrap.sh. make_release: build/intact-VERSION with everything that a release has, and its checksums. VERSION is the
# one of CMakeLists.txt. The section of CHANGELOG.md says whether it is released.

make_release() {
  local version folder title file metadata
  local definitions=(-DINTACT_BUILD_{PYTORCH,PYTORCH_LEGACY,ONNXRUNTIME,GGML}=OFF)  # packages do not depend on earlier commands
  version=$(sed -n 's/^project(intact VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
  folder=build/intact-$version
  title=$(grep -m 1 '^## ' CHANGELOG.md)
  [[ $title == "## $version "* ]] ||
    refuse "CHANGELOG.md begins with '$title'; expected a section of $version, the version of CMakeLists.txt"
  [[ -z $(git status --porcelain) ]] || refuse "the tree has changes that are not committed; expected a commit"
  [[ $title =~ \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$ ]] ||
    say "a rehearsal: CHANGELOG.md says '${title#\#\# }', without a date such as ($(date +%F))"
  install_packages dpkg-dev file unzip "${testing[@]}"

  make_wheel
  make_portable
  build release
  say "making Debian packages"
  rm -rf build/packages
  cpack --config build/release/CPackConfig.cmake -B build/packages >/dev/null

  rm -rf "$folder"
  mkdir "$folder"
  git archive --format=tar --prefix="intact-$version/" HEAD | gzip -n9 >"$folder/intact-$version.tar.gz"
  awk '/^## / { sections += 1 } sections == 1' CHANGELOG.md >"$folder/CHANGES.md"
  cp build/wheels/*.whl build/packages/*.deb build/portable/*.tar.gz "$folder"
  for file in "$folder"/*.{whl,deb,gz}; do
    [[ ${file##*/} == *"$version"* ]] || fail "$file is not of version $version"
  done
  metadata=$(unzip -p "$folder"/*.whl 'intact-*.dist-info/METADATA')
  [[ $metadata == *"Version: $version"* && $metadata == *"$(head -n 1 README.md)"* ]] ||
    fail "the wheel's metadata lacks version $version or the README"
  [[ $(unzip -l "$folder"/*.whl) == *libintact_onnxruntime_ep.so* ]] || fail "the wheel lacks the execution provider of ONNX Runtime"
  (cd "$folder" && sha256sum -- * >SHA256SUMS && sha256sum --check --quiet SHA256SUMS)
  ls -l "$folder"
}
