# SPDX-License-Identifier: Apache-2.0
# The front of everything one does with this repository. Behind it: cargo xtask.

XTASK := cargo run --quiet --package xtask --
NAME ?=
TARGETS ?=
SECONDS_EACH ?= 60

.DEFAULT_GOAL := help
.PHONY: help demo test test-bare test-unified check e2e bench fuzz guests bless deny clean prepare release

help:
	@echo "make demo            install what is missing, build, count words in a real corpus, twice"
	@echo "make test            everything that CI runs"
	@echo "make test-bare       the demo in a bare Debian 12 of its own (root, network, a quarter of an hour)"
	@echo "make test-unified    the suites of containers in an emulated machine with control groups of version 2 (root)"
	@echo "make check           format, lints, tidy, unit tests (below two minutes)"
	@echo "make e2e             the end-to-end tests alone: a real node, the shown commands"
	@echo "make bench NAME=x    print promised figures (invoke, chain, coldstart, loop …: docs/figures.md)"
	@echo "make fuzz NAME=x     fuzz one target for SECONDS_EACH=60; without NAME all, five seconds each"
	@echo "make release         the binary to install, laid out by what a node does, as an archive in target/dist (twenty minutes)"
	@echo "make guests          build the codelets into target/guests"
	@echo "make bless           accept what golden tests print now"
	@echo "make deny            licences, advisories, sources of what we link"
	@echo "make clean           remove all that was built or fetched"

# Cargo needs a linker before it can build what installs the rest.
prepare:
	@command -v cc >/dev/null || { apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev; }

demo: prepare
	@$(XTASK) demo

test: prepare
	@$(XTASK) test

test-bare: prepare
	@$(XTASK) test-bare $(TARGETS)

test-unified: prepare
	@$(XTASK) test-unified

check: prepare
	@$(XTASK) check

e2e: guests
	cargo test --package cli --test e2e

bench: prepare
	@$(XTASK) bench $(NAME) $(if $(JSON),--json) $(if $(WITHOUT_PEERS),--without-peers)

fuzz: prepare
	@$(XTASK) fuzz $(NAME) $(if $(NAME),$(SECONDS_EACH))

release: prepare
	@$(XTASK) release

guests: prepare
	@$(XTASK) guests

bless:
	UPDATE_EXPECT=1 cargo test --workspace

deny:
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	cargo deny check

clean:
	cargo clean
	rm -rf .demo
