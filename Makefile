# `make` lists what can be made. Everything runs inside .venv, from the hash-pinned files in requirements/.

.DEFAULT_GOAL := help
SHELL := /bin/sh
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.run-stamp
DEV := $(VENV)/.dev-stamp
CODE := $(strip src clients/python/src tests $(foreach d,benchmarks studies examples tools,$(if $(wildcard $(d)/*.py),$(d))))

# The first Python that is new enough; `make PYTHON=/path/to/python …` chooses another.
PYTHON ?= $(shell for p in python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

# Processes that run tests side by side: three keep two cores busy, since tests wait for the processes that they start. And
# further words for pytest or the benchmarks: `make test ARGS="-k plan"`.
WORKERS ?= 3
ARGS ?=

# What runs the tests; .ci/run lets tools/run_tests.py judge whether a test may run again.
RUN_TESTS ?= -m pytest

# One thread for each worker's linear algebra: as many threads as workers, not as many times all cores. Bytecode is kept, whatever
# the machine says: hundreds of processes start in the tests, and each would compile all of foldaway again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1 \
	$(BIN)/python $(RUN_TESTS) -n $(WORKERS) --dist worksteal
# Said at the end, whatever the tests came to; with CI set, what is missing fails too.
MISSING := tools/install_test_services.sh --missing

PIP := $(BIN)/python -m pip --disable-pip-version-check
# Pins name every package, so nothing is left to resolve: `package[extra]` in somebody's requirements would make pip look for
# a newer version that has no hash, and stop.
INSTALL_PINS := $(PIP) install --quiet --no-deps --require-hashes -r
INSTALL_PACKAGE := $(PIP) install --quiet --no-deps --no-build-isolation --editable .
INSTALL_CLIENT := $(INSTALL_PACKAGE)/clients/python

# Pins come from the public index alone, whatever else this machine's pip is told to look at.
PIP_COMPILE := CUSTOM_COMPILE_COMMAND="make pins" PIP_CONFIG_FILE=/dev/null PIP_EXTRA_INDEX_URL= PIP_FIND_LINKS= \
	$(BIN)/python -m piptools compile --quiet --generate-hashes --strip-extras --allow-unsafe \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(UPGRADE)

.PHONY: help demo test long again lint mypy format bench goldens vectors docs validate package pins clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUN) ## simulate a trial, stream it through, show its effects, what is left of its records, and its report
	$(BIN)/foldaway demo $(ARGS)

# Measuring coverage takes a quarter of the time, so that is done where changes are accepted.
COVERAGE := $(if $(CI),--cov --cov-report=term)

test: $(DEV) ## run the tests and doctests, all but the longest; with CI set, also measure coverage
	@tools/install_test_services.sh
	$(PYTEST) -m "not slow" $(COVERAGE) $(ARGS); ran=$$?; $(MISSING) && exit $$ran

long: $(DEV) ## run the longest tests: many kills, much data, further cases
	@tools/install_test_services.sh
	$(PYTEST) -m slow $(ARGS); ran=$$?; $(MISSING) && exit $$ran

again: $(DEV) ## run the tests that failed last once more, one after the other
	$(PYTEST) -n 0 --last-failed --last-failed-no-failures none $(ARGS)

lint: $(DEV) ## check style, formatting and types
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)

mypy: $(DEV)
	$(BIN)/mypy $(CODE)

format: $(DEV) ## put the code into its standard form
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: $(DEV) ## measure foldaway side by side with its peers
	$(BIN)/python -m benchmarks $(ARGS)

goldens: $(DEV) ## write tests/goldens and what docs/reference shows of plans and SQL anew, for a change that is meant to change them
	PYTHONPATH=tests $(BIN)/python -m goldens.write
	$(BIN)/python docs/settings.py
	$(BIN)/python docs/statements.py

vectors: $(DEV) ## write clients/protocol/vectors.json anew, which every client of devices is held to
	PYTHONPATH=tests $(BIN)/python tests/protocol_vectors.py

docs: $(DEV) ## build the documentation to site/, without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

validate: $(DEV) ## run the long studies again and write their results to docs/validation
	$(BIN)/python -m studies all --write $(ARGS)

package: $(DEV) ## build wheel and sdist to dist/, and try them and each extra in empty environments
	$(BIN)/python tools/check_package.py $(ARGS)

pins: $(DEV) ## compile requirements/*.txt again (UPGRADE=--upgrade for newer versions)
	$(PIP_COMPILE) --output-file requirements/run.txt requirements/run.in
	$(PIP_COMPILE) --output-file requirements/serve.txt requirements/serve.in
	$(PIP_COMPILE) --output-file requirements/dev.txt requirements/dev.in
	@if grep -nE '://|^ *(-i|-f|--(extra-)?index-url|--find-links|--trusted-host)' requirements/*.txt; then \
		echo "The pins above carry an address; they must not." >&2; exit 1; fi

clean: ## remove caches and builds, but not the environment
	rm -rf build dist site htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { \
		echo "foldaway needs Python 3.11 or later, and none was found: install one, or say make PYTHON=/path/to/python." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "This Python cannot make virtual environments: install its venv module (Debian: apt-get install python3-venv)." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN): requirements/run.txt pyproject.toml | $(BIN)/python
	$(INSTALL_PINS) requirements/run.txt
	$(INSTALL_PACKAGE)
	@touch $@

# The development pins contain the others, at the same versions.
$(DEV): requirements/dev.txt requirements/run.txt pyproject.toml clients/python/pyproject.toml | $(BIN)/python
	$(INSTALL_PINS) requirements/dev.txt
	$(PIP) check --quiet
	$(INSTALL_PACKAGE)
	$(INSTALL_CLIENT)
	@touch $@ $(RUN)
