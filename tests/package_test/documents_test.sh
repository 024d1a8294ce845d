#!/usr/bin/env bash
# documents_test.sh PREFIX SOURCES PROGRAM...
# Checks the manual pages and completions under PREFIX/share. They must mention each subcommand and option of --help, and each
# variable that the library in SOURCES reads; their formatter and their shells must accept them. Links of the pages in
# share/intact/docs must lead to installed files and to existing sections.
# Status 77: all is right, but a tool for some checks is missing.
set -euo pipefail

prefix=$1 sources=$2
shift 2
missing=()
fail() {
  echo "documents_test: $*" >&2
  exit 1
}
words() { grep -oE -- "$1" <<<"$2" | sort -u || true; }

# expect_mentioned PLACE TEXT WORD...
expect_mentioned() {
  local place=$1 text=$2 word
  shift 2
  (($#)) || fail "$place: nothing to look for"
  for word in "$@"; do
    grep -qwF -e "$word" <<<"$text" || fail "$place does not mention $word"
  done
}

# The text of the manual page $1, without fonts and escapes.
plain() { sed -e 's/\\f[BIR]//g' -e 's/\\-/-/g' "$prefix/share/man/man1/$1.1"; }

# complete_words WORD...: prints Bash's completions of the last word.
complete_words() {
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  COMPREPLY=()
  "_$1" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
  printf '%s\n' "${COMPREPLY[@]}"
}

check_page() {
  local program=$1 page=$prefix/share/man/man1/$1.1 variables title
  mapfile -t variables < <(grep -rhoE 'getenv\("INTACT_[A-Z_]+"' "$sources"/{jit,kernels} | grep -oE 'INTACT_[A-Z_]+' | sort -u)
  expect_mentioned "$page" "$(plain "$program")" "${variables[@]}"
  for title in NAME SYNOPSIS OPTIONS 'EXIT STATUS' ENVIRONMENT; do
    grep -qx -- ".SH $title" "$page" || fail "$page: no section $title"
  done
  if command -v groff >/dev/null; then
    local warnings
    warnings=$(groff -man -Tutf8 -K utf8 -ww -rLL=120n "$page" 2>&1 >/dev/null)
    [[ -z $warnings ]] || fail "$page: $warnings"
  else
    missing+=(groff)
  fi
}

# check_command PROGRAM [SUBCOMMAND...]: checks it and its subcommands.
check_command() {
  local help options subcommands word
  help=$("$prefix/bin/$1" "${@:2}" --help)
  mapfile -t options < <(words '--[a-z][a-z-]+' "$(sed -n '/^Options:/,/^$/p' <<<"$help" | grep -oE '^  (-h,)?--[a-z-]+')")
  mapfile -t subcommands < <(sed -n '/^Subcommands:/,/^$/p' <<<"$help" | grep -oE '^  [a-z]+' | tr -d ' ')
  ((${#options[@]})) || fail "$* --help lists no options"
  local all=("${options[@]}" "${subcommands[@]}")
  expect_mentioned "the manual page of $1" "$(plain "$1")" "${all[@]}"
  expect_mentioned "the completion of $*" "$(complete_words "$@" '' && complete_words "$@" -)" "${all[@]}"
  expect_mentioned "zsh's completion" "$(<"$prefix/share/zsh/site-functions/_$1")" "${all[@]}"
  expect_mentioned "fish's completion" "$(<"$prefix/share/fish/vendor_completions.d/$1.fish")" "${all[@]#--}"
  for word in "${subcommands[@]}"; do
    [[ $word =~ ^(audit|compare|digest|operators|repair)$ ]] || check_command "$@" "$word"  # these are Python's, with their own --help
  done
}

check_links() {
  local page link to section
  for page in "$prefix"/share/intact/docs/*.md; do
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
for program in "$@"; do
  # shellcheck source=/dev/null
  source "$prefix/share/bash-completion/completions/$program"
  complete -p "$program" >/dev/null
  [[ $(COLUMNS=40 LC_ALL=C "$prefix/bin/$program" --document bash) == "$(<"$prefix/share/bash-completion/completions/$program")" ]] ||
    fail "$program --document depends on the terminal"
  check_page "$program"
  check_command "$program"
  if command -v zsh >/dev/null; then zsh -n "$prefix/share/zsh/site-functions/_$program"; else missing+=(zsh); fi
  if command -v fish >/dev/null; then
    fish -n "$prefix/share/fish/vendor_completions.d/$program.fish"
  else
    missing+=(fish)
  fi
done

# Values, as one word and as two.
if [[ " $* " == *' intact '* ]]; then
  [[ $(complete_words intact verify sweep --mode s) == saturating ]] || fail "--mode s"
  [[ $(complete_words intact verify sweep --isa = avx5 | paste -sd ' ') == 'avx512 avx512_vnni' ]] || fail "--isa=avx5"
  cd "$prefix"
  [[ $(complete_words intact verify compare sha) == share ]] || fail "names of files"
fi

((${#missing[@]} == 0)) || {
  echo "documents_test: not here, so not asked: $(printf '%s\n' "${missing[@]}" | sort -u | paste -sd ' ')"
  exit 77
}
