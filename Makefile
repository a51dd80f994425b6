# `make help` lists what there is. Everything here can be run again; what is done is not done again.
TORCH := $(CURDIR)/.deps/torch-$(shell cat cmake/torch_version)/torch
JOBS := $(shell nproc)

.PHONY: help setup build test layouts faults timing parity quickstart bench debug asan tsan check format clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## install missing packages (as root; else say how) and fetch libtorch into .deps/
	@tools/setup

build: setup ## build/switchyard
	@tools/configure release $(TORCH)
	@cmake --build build --target switchyard

test: ## build, tools/check and all tests
	@tools/setup --checks
	@tools/check
	@tools/configure release $(TORCH)
	@cmake --build build
	@ctest --test-dir build --output-on-failure --no-tests=error --parallel $(JOBS)

layouts: setup ## 200 models and layouts drawn at random against one rank (make test: 30 of them)
	@tools/configure release $(TORCH)
	@cmake --build build --target layout_random_layout_test
	@SWITCHYARD_LAYOUTS=200 build/tests/layout_random_layout_test

faults: build ## 30 runs on 4 ranks killed at random moments, some inside a save (make test: 4)
	@cmake --build build --target switchyard_faults_test
	@SWITCHYARD_FAULTS=30 build/tests/switchyard_faults_test

timing: build ## tests that measure time; on a machine that does nothing else
	@cmake --build build --target pipeline_executor_test layout_overlap_test
	@SWITCHYARD_TIMING=1 build/tests/pipeline_executor_test --gtest_filter='*Timing*'
	@SWITCHYARD_TIMING=1 build/tests/layout_overlap_test --gtest_filter='*Timing*'

parity: setup ## compare with packages of other projects, fetched into .deps/ (tests/parity/README.md)
	@tools/fetch_parity
	@tools/configure release $(TORCH)
	@cmake --build build --target switchyard parity_programs
	@tests/parity/run

quickstart: build ## train a small Mixture-of-Experts model on real text, in three minutes
	@tools/quickstart

bench: setup ## time training steps against transformers and megatron-core, in turn (fetches 6 GB once)
	@tools/configure release $(TORCH)
	@cmake --build build --target bench_train_step
	@python3 bench/compare_steps.py --ours build/bench/bench_train_step \
	  --python "$${PEERS_PYTHON:-$$(tools/peers)}" $(BENCH)

debug: setup ## all tests without optimisation, with every new buffer filled with NaN (build-debug/)
	@tools/configure debug $(TORCH)
	@cmake --build build-debug
	@ctest --test-dir build-debug --output-on-failure --no-tests=error --parallel $(JOBS)

asan: setup ## all tests under the address and undefined-behaviour sanitizers (build-asan/)
	@tools/configure asan $(TORCH)
	@cmake --build build-asan
	@. tools/sanitizers && ctest --test-dir build-asan --output-on-failure --no-tests=error --parallel $(JOBS)

tsan: setup ## the tests that run no libtorch under the thread sanitizer (build-tsan/)
	@tools/configure tsan $(TORCH)
	@cmake --build build-tsan --target tests_base tests_config
	@. tools/sanitizers && ctest --test-dir build-tsan --output-on-failure --no-tests=error -R '^(base|config)/'

check: ## format, folders and forbidden words; `tools/check --tidy` adds clang-tidy on changed files
	@tools/check

format: ## clang-format all sources in place
	@tools/check --fix-format

clean: ## remove the build folders (.deps/ and runs/ stay)
	rm -rf build build-*
