# SPDX-License-Identifier: Apache-2.0
# A front for meson: each target is a short form of what CONTRIBUTING.md explains.

BUILD      ?= build
PREFIX     ?= /usr/local
DESTDIR    ?=
PYTHON     ?= /usr/bin/python3
MESON_ARGS ?=
SECONDS    ?= 60

# Real photos for parity and speed, if there are any; without them tests skip that part and benches use made-up images.
PENSTOCK_PHOTOS ?= $(abspath $(firstword $(wildcard photos ../shared/data/imagenet-sample)))
ifneq ($(PENSTOCK_PHOTOS),)
export PENSTOCK_PHOTOS
endif

.PHONY: build demo test test-long test-operator bench bench-peers wheel lint format fuzz install clean help setup

build: $(BUILD)/build.ninja
	ninja -C $(BUILD) penstock bench/decode_limit

$(BUILD)/build.ninja:
	meson setup $(BUILD) $(MESON_ARGS)

setup:
	tools/setup.sh build

demo:
	tools/setup.sh build
	$(MAKE) --no-print-directory build
	@$(PYTHON) tools/demo.py $(BUILD)

test:
	tools/setup.sh build test servers
	@$(PYTHON) tools/run_tests.py test

test-long:
	tools/setup.sh build test servers
	@$(PYTHON) tools/run_tests.py long

test-operator:
	tools/setup.sh build operator
	$(MAKE) --no-print-directory build
	@$(PYTHON) tools/test_operator.py $(BUILD)/penstock

bench:
	tools/setup.sh build bench
	$(MAKE) --no-print-directory build
	$(PYTHON) bench/run.py --penstock $(BUILD)/penstock --limit $(BUILD)/bench/decode_limit --report $(BUILD)/bench.html $(if $(PENSTOCK_PHOTOS),--data $(PENSTOCK_PHOTOS))

bench-peers:
	tools/setup.sh build bench python peers
	$(MAKE) --no-print-directory build
	ninja -C $(BUILD)
	$(PYTHON) bench/peers.py --penstock $(BUILD)/python $(if $(PENSTOCK_PHOTOS),--data $(PENSTOCK_PHOTOS),--data photos)

wheel:
	tools/setup.sh build python
	PYTHON=$(PYTHON) tools/wheel.sh dist

lint:
	tools/setup.sh build lint
	tools/lint.sh

format:
	tools/lint.sh --format

fuzz:
	tools/setup.sh build test
	tools/fuzz.sh $(SECONDS)

install: build
	meson configure $(BUILD) -Dprefix=$(PREFIX)
	DESTDIR=$(DESTDIR) meson install -C $(BUILD) --quiet --tags runtime,devel,man
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

clean:
	rm -rf $(BUILD) build-asan build-tsan build-lint build-fuzz build-wheel build-tools

help:
	@echo "make            builds $(BUILD)/penstock"
	@echo "make demo       installs what building needs, builds, feeds two jobs from a small made-up dataset"
	@echo "make test       installs what testing needs, runs every test of CI, with sanitizers too"
	@echo "make test-long  the tests that take hours"
	@echo "make test-operator the Kubernetes part, with a control plane of its own;"
	@echo "                PENSTOCK_STRICT_TIMES=1: every fault has to be over in 30 s"
	@echo "make bench      throughput beside PyTorch and beside the decoder's limit"
	@echo "make bench-peers throughput beside the other loaders that can be installed here"
	@echo "make wheel      a self-contained wheel in dist/, for CPython 3.11 and later"
	@echo "make lint       formatting, warnings, include arrows, banned calls, exported symbols"
	@echo "make format     formats every C file as lint wants it"
	@echo "make fuzz       runs each fuzz target for SECONDS=60"
	@echo "make install    into PREFIX=/usr/local, below DESTDIR"
	@echo "make clean      removes every build folder"
