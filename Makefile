# `make help` lists the targets. Everything runs in .venv, which the first target to need it makes.
#   PYTHON=...     interpreter to build .venv with (3.11 or newer)
#   PIP_FLAGS=...  further options for pip, such as --extra-index-url for another build of torch
#   PYTEST_ARGS=.. further options for pytest
#   BENCH_ARGS=... further options for the benchmarks, such as --compare OLD/bench.json

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help venv demo loggers test test-full test-bare lint checks format docs dist bench clean

BIN := .venv/bin
STAMP := .venv/.installed
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11 python
PYTHON ?= $(firstword $(foreach p,$(CANDIDATES),$(shell $(p) $(NEW_ENOUGH) 2>/dev/null && echo $(p))))
# Files in their order: by default those of few tests, the longest among them, come last, on one core.
# Four workers, as tests of processes mostly wait: on two quiet cores some 480 s, with three 600.
IN_TURN := -n 4 --dist loadfile --no-loadscope-reorder

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## make .venv with the pinned dependencies and this checkout (editable)

$(STAMP): pyproject.toml constraints.txt
	@if [ -x $(BIN)/python ] && $(BIN)/python $(NEW_ENOUGH) 2>/dev/null; then :; \
	elif [ -n "$(PYTHON)" ] && $(PYTHON) $(NEW_ENOUGH) 2>/dev/null; then \
	  $(PYTHON) -m venv --clear .venv 2>/dev/null \
	  || { $(PYTHON) -m venv --clear --without-pip .venv \
	       && $(PYTHON) -m pip --python $(BIN)/python install pip; }; \
	else \
	  echo "rss-rl needs Python 3.11 or newer; $(if $(PYTHON),$(PYTHON) is older or does not run,none of '$(CANDIDATES)' is)." >&2; \
	  echo "Install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; \
	  exit 1; \
	fi
	$(BIN)/python -m pip install --quiet -c constraints.txt $(PIP_FLAGS) setuptools
	$(BIN)/python -m pip install --quiet -c constraints.txt $(PIP_FLAGS) --no-build-isolation -e '.[dev]'
	@touch $@

demo: $(STAMP) ## train on the embedded sentences with a planted rationale (under 4 minutes on 2 cores)
	$(BIN)/rss-rl demo

loggers: $(STAMP) ## test W&B, MLflow and Trackio offline, in .venv-loggers
	$(BIN)/python -m venv --clear .venv-loggers
	.venv-loggers/bin/python -m pip install --quiet -c constraints.txt $(PIP_FLAGS) setuptools
	.venv-loggers/bin/python -m pip install --quiet $(PIP_FLAGS) --no-build-isolation \
	  -e '.[mlflow,trackio,wandb]' $$(grep '^torch==' constraints.txt) pytest pytest-timeout hypothesis
	.venv-loggers/bin/python -m pytest -q -p no:cacheprovider -W default \
	  tests/logs/test_loggers_for_real.py

test: checks ## lint, types, import contracts and the tests (8 to 11 minutes on 2 cores)
	$(BIN)/python -m pytest $(IN_TURN) -m "not slow" $(PYTEST_ARGS)

test-full: checks ## the same with the slow tests
	$(BIN)/python -m pytest $(IN_TURN) $(PYTEST_ARGS)

test-bare: $(STAMP) ## quick tests of models and formulas as on a machine without a C++ compiler
	CXX=no-such-compiler $(BIN)/python -m pytest -n 2 -m "not slow" tests/ops tests/models $(PYTEST_ARGS)

lint: checks ## lint, format check, types and import contracts

checks: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP) ## reformat and fix what can be fixed
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: $(STAMP) ## build the documentation site in site/, strictly and without a network
	$(BIN)/python docs/build_site.py

dist: $(STAMP) ## wheel and sdist in dist/, and the demo from the wheel in an empty environment
	BIN=$(abspath $(BIN)) PIP_FLAGS="$(PIP_FLAGS)" .ci/dist

bench: $(STAMP) ## a model in use beside pipelines, a training step beside plain torch, in bench/ (10 minutes)
	$(BIN)/python tests/benchmarks/bench.py $(BENCH_ARGS)

clean: ## remove .venv, build products and caches
	rm -rf .venv build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
