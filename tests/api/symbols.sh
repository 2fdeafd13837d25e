#!/bin/sh
# The shared library exports what its public headers declare and nothing else. usage: symbols.sh LIBRARY HEADER...
set -eu
exported=$(nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//' | sort)
shift
declared=$(grep -oh "^GLINT_API [^;(]*(" "$@" | sed 's/($//; s/.*[ *]//' | sort)
if [ "$exported" != "$declared" ]; then
  echo "exported:" $exported
  echo "declared:" $declared
  exit 1
fi
echo "$exported"
