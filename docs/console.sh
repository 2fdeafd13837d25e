#!/bin/sh
# Runs the commands of a page's console blocks and puts their output into the page. A block is
#     ```console
#     $ glint layout complement '4:2' 24
#     (2,3):(1,8)
#     ```
# usage: console.sh GLINT PAGE.md           writes the page, and files that the commands make into the page's folder PAGE/
#        console.sh GLINT PAGE.md --check   changes nothing; fails where the page or a file differs
set -eu
glint=$(cd "$(dirname "$1")" && pwd)
page=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
files=${page%.md}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/files"
# awk takes the page apart: text goes through, each command is run, what stood behind it is dropped
cd "$work/files"
PATH=$glint:$PATH LC_ALL=C awk '
  /^```console$/ { inside = 1; print; next }
  inside && /^```$/ { inside = 0; print; next }
  inside && /^\$ / {
    print
    command = "{ " substr($0, 3) "; } 2>&1"
    while ((command | getline line) > 0) print line
    close(command)
    next
  }
  !inside { print }
' "$page" >"$work/page.md"
if [ "${3:-}" = --check ]; then
  diff -u "$page" "$work/page.md" || { echo "$2 is not what the commands print; run $0 without --check"; exit 1; }
  for f in *; do
    [ -e "$f" ] || continue
    cmp "$f" "$files/$f" || { echo "$files/$f is not what the commands make"; exit 1; }
  done
else
  cat "$work/page.md" >"$page"
  for f in *; do
    [ -e "$f" ] || continue
    mkdir -p "$files"
    cp "$f" "$files/$f"
  done
fi
