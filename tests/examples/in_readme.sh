#!/usr/bin/env bash
# The first C block of the README is examples/minimal.c, letter by letter.
# usage: in_readme.sh README.md minimal.c
set -euo pipefail
diff <(awk '/^```c$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' "$1") "$2"
