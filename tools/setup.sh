#!/usr/bin/env bash
# Sees to it that what the build needs is there: installs missing Debian packages when it may, and otherwise says which they are.
# usage: tools/setup.sh [--tests] [--lint]
set -euo pipefail

missing=()

need_program() { # PROGRAM PACKAGE
  command -v "$1" >/dev/null || missing+=("$2")
}

need_library() { # PKG-CONFIG-NAME PACKAGE
  if ! command -v pkg-config >/dev/null || ! pkg-config --exists "$1"; then missing+=("$2"); fi
}

need_program cc gcc
need_program make make
need_program cmake cmake
need_program pkg-config pkg-config
need_library libcjson libcjson-dev
for option in "$@"; do
  case $option in
  --tests) need_library cmocka libcmocka-dev ;;
  --lint)
    need_program clang-format clang-format
    need_program cppcheck cppcheck
    need_program shellcheck shellcheck
    ;;
  *)
    echo "setup: unknown option $option" >&2
    exit 2
    ;;
  esac
done

if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

say_how() {
  echo "setup: missing: ${missing[*]}" >&2
  echo "setup: on Debian or Ubuntu: sudo apt-get install ${missing[*]}" >&2
  exit 1
}

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then say_how; fi
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# the package lists may be absent or old; a failing update only matters if the installation fails too
apt-get update -qq </dev/null >/dev/null || true
apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null || say_how
