# Commands for a fresh clone: `make demo`, `make train-demo` and `make test`. Everything is built by CMake in build/; this file only knows the order.
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
CMAKE_FLAGS ?=

.PHONY: all demo train-demo test install clean bench format lint setup setup-tests

all: setup
	cmake -S . -B $(BUILD) -DGLINT_BUILD_TESTS=OFF $(CMAKE_FLAGS)
	MAKEFLAGS= cmake --build $(BUILD) --parallel $(JOBS)

demo: all
	bash examples/demo.sh $(BUILD)/glint

# without GPU kernels, which this does not need and which take nvcc minutes; threads that wait leave the processor to others
train-demo: setup
	cmake -S . -B $(BUILD)-train -DGLINT_BUILD_TESTS=OFF -DGLINT_CUDA=OFF -DGLINT_BUILD_SIM=OFF $(CMAKE_FLAGS)
	MAKEFLAGS= cmake --build $(BUILD)-train --parallel $(JOBS) --target glint_train
	OMP_WAIT_POLICY=passive $(BUILD)-train/train examples/train/tides.txt --compare 20 --output $(BUILD)-train/loss.svg

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
	cmake -E rm -rf $(BUILD) $(BUILD)-train

setup:
	bash tools/setup.sh

setup-tests:
	bash tools/setup.sh --tests
