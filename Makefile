# The front door. `make help` lists what there is.
#
# Variables: LIBTORCH=DIR     build against this LibTorch (torch/ of a wheel or zip, 2.11 to 2.15)
#            JOBS=N           compile and test N at a time (default: as cores and memory allow)
#            PRESET=debug     build another preset of CMakePresets.json (default: release)
#            PREFIX=DIR       where `make install` puts gradus (default: ~/.local)
#            FUZZ_SECONDS=N   time per fuzzer for `make fuzz` (default: 60)
#            MINUTES=N        time of `make chaos` (default: 10)
#            SEED=N           the round with which `make chaos` begins (default: a random one)
SHELL := /bin/bash
# one compiler takes up to 2.5 GB
JOBS ?= $(shell awk -v cores=$$(nproc) '/^MemTotal/ { \
	n = int($$2 / 2500000); print n < 1 ? 1 : n < cores ? n : cores}' /proc/meminfo)
PRESET ?= release
PREFIX ?= $(HOME)/.local
BUILD := build/$(PRESET)
FUZZ_SECONDS ?= 60
MINUTES ?= 10
SEED ?=
CTEST_ARGS ?=
# without this ccache does not work with a precompiled header
export CCACHE_SLOPPINESS ?= pch_defines,time_macros,include_file_mtime,include_file_ctime
# a build without -Werror is good for one with it: quickstart, then test, compiles nothing twice
export CCACHE_IGNOREOPTIONS ?= -Werror
PEER := $${XDG_CACHE_HOME:-$$HOME/.cache}/gradus/peer/bin/python

.PHONY: help quickstart setup configure build test install uninstall wheel package bench peer \
	format lint docs fuzz sanitize chaos clean
.DEFAULT_GOAL := help

help:
	@echo 'make quickstart   install what is missing, build the program, train a real model'
	@echo 'make install      build the program and the library, install them in PREFIX=$(PREFIX)'
	@echo 'make uninstall    remove what `make install` put into PREFIX=$(PREFIX)'
	@echo 'make wheel        a Python wheel with the program and the library, in dist/'
	@echo 'make package      a .tar.gz and a .deb that need nothing else, in dist/'
	@echo 'make test         install what is missing, build everything, run every test'
	@echo 'make build        install what is missing, build everything'
	@echo 'make bench        build and run the benchmarks (some compare with Python: make peer)'
	@echo 'make peer         make the Python side for tests/differential and benchmarks'
	@echo 'make docs         write docs/user/options.md anew, and the API reference in build/api'
	@echo 'make format       clang-format on our sources'
	@echo 'make lint         clang-tidy on the files changed since origin or HEAD'
	@echo 'make fuzz         run each fuzzer of tests/fuzz for FUZZ_SECONDS=$(FUZZ_SECONDS) seconds'
	@echo 'make sanitize     the library, its tests and tiny runs with address and thread sanitizer'
	@echo 'make chaos        kill, starve and damage runs for MINUTES=$(MINUTES), and resume them'
	@echo 'make clean        remove build/ (downloads in .deps/ and results in runs/ stay)'
	@sed -n 's/^# \(Variables:\|          \)/\1/p' Makefile

quickstart:
	@JOBS=$(JOBS) exec tools/quickstart

setup:
	@tools/setup

# Warnings are errors where everything is built and tested. For quickstart and install they are not:
# a compiler that we have not tried may have new ones.
configure: setup
	@tools/configure $(PRESET) -DGRADUS_WERROR=ON

build: configure
	@cmake --build $(BUILD) -j $(JOBS)

# Each of the tests that run at a time has its share of the cores: threads of two programs on the
# same cores wait for each other.
test: build
	@share=$$(($$(nproc) / $(JOBS))); export OMP_NUM_THREADS=$$((share > 1 ? share : 1)); \
		ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure $(CTEST_ARGS)

install: setup
	@tools/configure $(PRESET)
	@cmake --build $(BUILD) -j $(JOBS) --target gradus_installed_parts
	@tools/install $(BUILD) "$(PREFIX)"

uninstall:
	@tools/uninstall "$(PREFIX)"

wheel package: setup
	@tools/configure $(PRESET)
	@cmake --build $(BUILD) -j $(JOBS) --target gradus_installed_parts
	@for kind in $(if $(filter wheel,$@),wheel,tar deb); do \
		tools/package $$kind --build $(BUILD) || exit; done

bench: setup
	@tools/configure $(PRESET) -DGRADUS_BENCHMARKS=ON
	@cmake --build $(BUILD) -j $(JOBS)
	@python=$(PEER); [ -x "$$python" ] || python=python3; \
		"$$python" benchmarks/run.py --build $(BUILD)

peer:
	@tools/setup --peer

format: setup
	@git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -r .deps/clang-format/clang-format -i

lint: configure
	@tools/lint $(BUILD)

docs: configure
	@tools/setup --docs
	@cmake --build $(BUILD) -j $(JOBS) --target gradus_cli
	@mkdir -p docs/user && $(BUILD)/bin/gradus options --markdown >docs/user/options.md.part
	@mv docs/user/options.md.part docs/user/options.md
	@tools/api-reference build/api

fuzz: setup
	@tools/fuzz $(FUZZ_SECONDS) $(JOBS)

sanitize: setup
	@tools/sanitize $(JOBS)

chaos: setup
	@JOBS=$(JOBS) tools/chaos $(MINUTES) $(SEED)

clean:
	rm -rf build
