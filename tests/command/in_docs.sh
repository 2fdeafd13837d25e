#!/usr/bin/env bash
# What a page shows under "<!-- COMMAND -->" is what the command prints. usage: in_docs.sh GLINT PAGE VERB [ARGUMENT...]
set -euo pipefail
glint=$1 page=$2
shift 2
shown=$(awk -v mark="<!-- glint $* -->" '$0 == mark { found = 1; next } found && /^```/ { if (inside) exit; inside = 1; next } inside' "$page")
[ -n "$shown" ] || { echo "$page has no block under <!-- glint $* -->"; exit 1; }
diff <(echo "$shown") <("$glint" "$@") && echo "$page shows what glint $* prints"
