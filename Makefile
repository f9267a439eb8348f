# The commands of this repository. `make lab` and `make test` set up everything they need by themselves.
.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
VM ?=
SITE := $(if $(VM),lab_vm,lab)

.PHONY: help lab test check proof bench down clean machine

help:  ## these lines
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

lab: machine $(BIN)/.ready  ## boot a rack on this machine and provision it from bare (VM=1 adds the NUMA guest)
	$(BIN)/gpurack lab up --bare --site inventories/$(SITE).yaml
	$(BIN)/pyinfra --yes inventories/$(SITE) deploys/control_plane.py
	$(BIN)/pyinfra --yes inventories/$(SITE) deploys/gpu_node.py
	$(BIN)/gpurack lab status --site inventories/$(SITE).yaml

test: machine check  ## everything, on real hosts of the lab (root; about 25 minutes when components are built)
	$(BIN)/pytest tests/contract tests/lab tests/infra --durations=15

check: $(BIN)/.ready  ## lint, types, arrows, unit and role tests; no root, under a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest tests/unit tests/roles

proof: machine $(BIN)/.ready  ## every "Must show" line of docs/proof.md, however long
	$(BIN)/pytest tests/contract tests/lab tests/infra tests/proof --durations=25
	$(MAKE) bench

bench: machine $(BIN)/.ready  ## figures as ratios against a plain ssh or shell peer in the same run
	$(BIN)/python -m tests.bench

down: $(BIN)/.ready  ## stop the rack; leaves nothing behind but the cache
	$(BIN)/gpurack lab down

clean:  ## remove what was built in this folder (not the component cache)
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

machine:
	@sh src/gpurack/lab/machine.sh

$(BIN)/.ready: requirements.lock pyproject.toml
	@sh src/gpurack/lab/machine.sh --python
	python3 -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
