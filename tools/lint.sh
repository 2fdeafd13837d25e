#!/usr/bin/env bash
# Formatting, static analysis and shell checks of the sources; --fix formats instead of complaining.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t sources < <(find include src tools testkit tests examples bench kernels sim lessons -name '*.[ch]' 2>/dev/null | sort)
if [ "${1:-}" = --fix ]; then
  clang-format -i "${sources[@]}"
  exit 0
fi

clang-format --dry-run --Werror "${sources[@]}" # kernels/isa, tables of instructions, has a .clang-format of its own that turns it off
# uninitvar is left to gcc (-Wmaybe-uninitialized): cppcheck does not see that a status guards a value
cppcheck --quiet --std=c11 --enable=warning,performance,portability --error-exitcode=1 --inline-suppr --suppress=missingIncludeSystem \
  --suppress=uninitvar -j "$(nproc)" -Iinclude -Isrc -Isrc/api -Itools -Itools/io -Itestkit -Iexamples/train src/api src/oracle src/cuda src/layout tools testkit examples
mapfile -t scripts < <(find . -path './build*' -prune -o -name '*.sh' -print | sort)
shellcheck --severity=warning "${scripts[@]}" .ci/run
echo "lint: ${#sources[@]} C files and ${#scripts[@]} scripts are clean"
