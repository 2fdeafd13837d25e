# Two commands on a fresh clone: `make demo` and `make test`. Everything is built by CMake in build/; this file only knows the order.
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
CMAKE_FLAGS ?=

.PHONY: all demo test install clean bench format lint setup setup-tests

all: setup
	cmake -S . -B $(BUILD) -DGLINT_BUILD_TESTS=OFF $(CMAKE_FLAGS)
	MAKEFLAGS= cmake --build $(BUILD) --parallel $(JOBS)

demo: all
	bash examples/demo.sh $(BUILD)/glint

test: setup-tests
	cmake -S . -B $(BUILD) -DGLINT_BUILD_TESTS=ON $(CMAKE_FLAGS)
	MAKEFLAGS= cmake --build $(BUILD) --parallel $(JOBS)
	ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS)

install: all
	cmake --install $(BUILD) --prefix $(PREFIX)

bench: all
	bash bench/cpu.sh $(BUILD)/glint

format:
	bash tools/lint.sh --fix

lint:
	bash tools/lint.sh

clean:
	cmake -E rm -rf $(BUILD)

setup:
	bash tools/setup.sh

setup-tests:
	bash tools/setup.sh --tests
