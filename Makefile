# Two commands matter: `make demo` shows the whole system at work, `make test` proves it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TARGET := $(or $(CARGO_TARGET_DIR),target)
BUILD_PACKAGES := build-essential ca-certificates curl git busybox-static
WASM_PACKAGES := rustc-web rust-web-src lld
# Debian's compiler for the Web is needed only where rustup has no wasm32 target.
HAS_WASM := $(shell rustup target list --installed 2>/dev/null | grep -qx wasm32-unknown-unknown && echo yes)
# Node.js often comes from elsewhere, with its own npm that Debian's package of that name conflicts with.
HAS_NPM := $(shell command -v node >/dev/null && command -v npm)
TEST_PACKAGES := procps chromium sudo zsh $(if $(HAS_NPM),,nodejs npm) $(if $(HAS_WASM),,$(WASM_PACKAGES))
DEMO_FLAGS := $(if $(filter-out 0,$(KEEP)),--keep)

# A shard of the mutants that every change runs: one in this many.
MUTANTS_SHARD := 0/1500

.PHONY: help demo test test-native test-web gates prove bench check needs-rust needs-build needs-test needs-proofs

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: needs-build ## Run the main job on this machine and prove it; KEEP=1 leaves it running
	@scripts/start-docker
	@echo "==> building palisade (the first build takes some minutes)"
	@cargo build --package palisade
	@guest=$$(scripts/build-guest); exec $(TARGET)/debug/palisade demo --guest "$$guest" $(DEMO_FLAGS)

test: test-native test-web ## Run every test there is

test-native: needs-test
	@scripts/start-docker
	@echo "==> building the guest and all tests"
	@scripts/build-guest >/dev/null
	@export PALISADE_TEST_DATABASE_URL=$$(scripts/start-postgres); \
	if cargo nextest --version >/dev/null 2>&1; then \
	    cargo nextest run --workspace; \
	    cargo test --workspace --doc --quiet; \
	else \
	    cargo test --workspace --no-fail-fast --quiet; \
	fi

test-web: needs-test
	@echo "==> building the core for the Web and checking its imports"
	@scripts/wasm-core.sh
	@echo "==> testing the package in Node and Chromium"
	@cd web-tests && npm ci --no-audit --no-fund --loglevel=error && npm test

gates: needs-proofs ## Histories, instruction counts, generated requests, a shard of mutants: minutes
	@echo "==> simulating twenty thousand histories"
	@cargo test --quiet --profile simulation --package palisade-sim
	@echo "==> counting instructions"
	@scripts/instructions
	@echo "==> asking a live core about every route"
	@scripts/check-api
	@echo "==> testing a shard of the mutants of the core"
	@scripts/mutants --shard $(MUTANTS_SHARD)

prove: needs-proofs ## The long proofs of the protocol core: hours; PROOFS names some of them
	@command -v cargo-fuzz >/dev/null || cargo install --quiet --debug cargo-fuzz
	@scripts/prove $(PROOFS)

bench: needs-proofs ## Measure everything that has a target, and print one table; MEASURES names some of it
	@scripts/start-docker
	@scripts/build-guest >/dev/null
	@scripts/bench $(MEASURES)

check: needs-rust ## Formatting, lints, documentation, licences
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --quiet -- -D warnings
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	@if command -v cargo-deny >/dev/null; then \
	    cargo deny --log-level error check licenses bans sources; \
	else \
	    echo "note: cargo-deny is not installed; licences and sources were not checked (cargo install cargo-deny)"; \
	fi

needs-rust:
	@command -v cargo >/dev/null || { echo "error: no cargo on the path; install Rust 1.90 or newer with rustup" >&2; exit 1; }

needs-build: needs-rust
	@scripts/install-packages $(BUILD_PACKAGES)

needs-test: needs-build
	@scripts/install-packages $(TEST_PACKAGES)

# Unoptimised: they build in a fraction of the time.
needs-proofs: needs-build
	@scripts/install-packages valgrind lld python3-venv
	@command -v gungraun-runner >/dev/null || cargo install --quiet --debug gungraun-runner --version "~$$(sed -n 's/^gungraun = "\(.*\)"$$/\1/p' Cargo.toml)"
	@command -v cargo-mutants >/dev/null || cargo install --quiet --debug cargo-mutants
