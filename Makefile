# The front door. `make help` lists what there is.
#
# Variables: LIBTORCH=DIR     build against this LibTorch 2.11 to 2.15 (torch/ of a wheel or zip)
#            JOBS=N           compile and test N at a time (default: cores, as far as memory goes)
#            PRESET=debug     build another preset of CMakePresets.json (default: release)
#            FUZZ_SECONDS=N   time per fuzzer for `make fuzz` (default: 60)
SHELL := /bin/bash
# one compiler takes up to 2 GB
JOBS ?= $(shell awk -v cores=$$(nproc) '/^MemTotal/ {n = int($$2 / 2000000); \
  print n < 1 ? 1 : n < cores ? n : cores}' /proc/meminfo)
PRESET ?= release
BUILD := build/$(PRESET)
FUZZ_SECONDS ?= 60
CTEST_ARGS ?=
# without this ccache does not work with a precompiled header
export CCACHE_SLOPPINESS ?= pch_defines,time_macros,include_file_mtime,include_file_ctime
PEER := $${XDG_CACHE_HOME:-$$HOME/.cache}/gradus/peer/bin/python

.PHONY: help quickstart setup configure build test bench peer format lint docs fuzz sanitize clean
.DEFAULT_GOAL := help

help:
	@echo 'make quickstart   install what is missing, build, train a real model on Fashion-MNIST'
	@echo 'make test         install what is missing, build everything, run every test'
	@echo 'make build        install what is missing, build everything'
	@echo 'make bench        build and run the benchmarks (some need the Python peer: make peer)'
	@echo 'make peer         make the Python side for tests/differential and benchmarks'
	@echo 'make docs         write docs/user/options.md anew from the option tables'
	@echo 'make format       clang-format on our sources'
	@echo 'make lint         clang-tidy on the files changed since origin or HEAD'
	@echo 'make fuzz         run each fuzzer of tests/fuzz for FUZZ_SECONDS=$(FUZZ_SECONDS) seconds'
	@echo 'make sanitize     tests of readers and loader under the address and thread sanitizers'
	@echo 'make clean        remove build/ (downloads in .deps/ and results in runs/ stay)'
	@sed -n 's/^# \(Variables:\|          \)/\1/p' Makefile

quickstart:
	@JOBS=$(JOBS) exec tools/quickstart

setup:
	@tools/setup

configure: setup
	@tools/configure $(PRESET)

build: configure
	@cmake --build $(BUILD) -j $(JOBS)

test: build
	@ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure $(CTEST_ARGS)

bench: setup
	@tools/configure $(PRESET) -DGRADUS_BENCHMARKS=ON
	@cmake --build $(BUILD) -j $(JOBS)
	@python=$(PEER); [ -x "$$python" ] || python=python3; "$$python" benchmarks/run.py --build $(BUILD)

peer:
	@tools/setup --peer

format: setup
	@git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -r .deps/clang-format/clang-format -i

lint: configure
	@tools/lint $(BUILD)

docs: configure
	@cmake --build $(BUILD) -j $(JOBS) --target gradus_cli
	@mkdir -p docs/user
	@$(BUILD)/bin/gradus options --markdown > docs/user/options.md.part
	@mv docs/user/options.md.part docs/user/options.md

fuzz: setup
	@tools/fuzz $(FUZZ_SECONDS) $(JOBS)

sanitize: setup
	@tools/sanitize $(JOBS)

clean:
	rm -rf build
