#!/bin/sh
# usage: consumers.sh BUILD_DIR THIS_DIR CC [CXX]. Installs glint and links a C and a C++17 program to it through pkg-config and through
# find_package, each with the shared and with the static library.
# shellcheck disable=SC2046 # pkg-config's words are meant to be split
set -eu
build=$1 here=$2 cc=$3 cxx=${4:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/moved" # nothing in the package may remember where it was installed
pc=$(dirname "$(find "$work/moved" -name glint.pc)")
lib=$(dirname "$pc")
cp -R "$work/moved" "$work/static"
rm "$work/static/${lib#"$work/moved/"}"/libglint.so*
static_pc="$work/static/${pc#"$work/moved/"}"

run() { # NAME COMMAND...: a program that must end well, with only the library's own output
  name=$1; shift
  LD_LIBRARY_PATH=$lib "$@" || { echo "$name: failed"; exit 1; }
  echo "$name: ok"
}

export PKG_CONFIG_PATH=$pc
strict="-Wall -Wextra -Wpedantic -Werror"
$cc -std=c11 $strict "$here/consumer.c" $(pkg-config --cflags --libs glint) -o "$work/c_shared"
run "C, pkg-config, shared" "$work/c_shared"
if [ -x "$work/moved/bin/glint" ]; then # the command is optional
  test "$(LD_LIBRARY_PATH=$lib "$work/moved/bin/glint" --version)" = "glint $(pkg-config --modversion glint)"
fi
PKG_CONFIG_PATH=$static_pc
$cc -std=c11 $strict "$here/consumer.c" $(pkg-config --static --cflags --libs glint) -o "$work/c_static"
run "C, pkg-config, static" "$work/c_static"
if [ -n "$cxx" ]; then
  $cxx -std=c++17 $strict "$here/consumer.cpp" $(pkg-config --static --cflags --libs glint) -o "$work/cpp_static"
  run "C++, pkg-config, static" "$work/cpp_static"
  PKG_CONFIG_PATH=$pc
  $cxx -std=c++17 $strict "$here/consumer.cpp" $(pkg-config --cflags --libs glint) -o "$work/cpp_shared"
  run "C++, pkg-config, shared" "$work/cpp_shared"
fi

for language in c ${cxx:+cpp}; do
  cmake -S "$here/project_$language" -B "$work/project_$language" -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_C_COMPILER="$cc" \
    ${cxx:+-DCMAKE_CXX_COMPILER="$cxx"} >"$work/log" 2>&1 && cmake --build "$work/project_$language" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  run "$language, find_package, shared" "$work/project_$language/shared"
  run "$language, find_package, static" "$work/project_$language/static"
done
