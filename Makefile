# `make help` lists the targets. They make $(VENV) and install everything into it on first use; later
# calls install nothing until pyproject.toml or constraints.txt changes.
# Settings, for example `make test PYTHON=python3.12`:
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
# LEARN2LEARN=no leaves learn2learn out, for a machine without a C compiler.
LEARN2LEARN ?= yes

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
INSTALLED := $(VENV)/.installed
ifneq ($(LEARN2LEARN),no)
INSTALLED += $(VENV)/.installed-learn2learn
endif

.PHONY: help demo test lint format types pytest coverage docs install clean
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "settings: PYTHON=$(PYTHON) VENV=$(VENV) JOBS=$(JOBS) LEARN2LEARN=$(LEARN2LEARN)"

demo: install ## train networks on chosen glyph classes, print the table of methods, write a report
	$(BIN)/fsl-basesel demo

test: lint types pytest ## lint, format check, type check, tests and doctests

lint: install ## ruff: lint and format check; oxlint: the code of the page
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/oxlint --deny-warnings fsl_basesel

types: install ## mypy
	$(BIN)/mypy

# One file of tests stays on one worker, so that a numba kernel is compiled once, not once per worker.
pytest: install ## tests and doctests, JOBS at a time
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile

coverage: install ## tests with the share of lines they run, in all and by file
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --cov --cov-report=term

docs: install ## the documentation as a site in site/, without network
	$(BIN)/mkdocs build --strict

format: install ## let ruff fix and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(INSTALLED) ## make the environment, nothing else

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(not (3, 10) <= v <= (3, 14) and \
	"Expected $(PYTHON) to be Python 3.10 to 3.14 but got %d.%d; name another one, as in: make test PYTHON=python3.12" % v)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --disable-pip-version-check -c constraints.txt -e '.[dev,learn2learn]'
	@touch $@

# learn2learn ships C that no longer compiles on Python >= 3.11; `build_ext` makes it anew from the
# Cython source. --no-deps, because it asks for packages it never imports (docs/dependencies.md).
$(VENV)/.installed-learn2learn: constraints.txt $(VENV)/.installed
	@$(PIP) install --disable-pip-version-check -c constraints.txt --no-deps --use-pep517 \
	--config-settings=--build-option=build_ext learn2learn \
	|| { echo; echo "learn2learn did not install (the reason is above). It is compiled on this machine and needs"; \
	echo "a C compiler and the Python headers: on Debian or Ubuntu, apt install gcc python3-dev."; \
	echo "Everything else works without it: make demo LEARN2LEARN=no"; exit 1; } >&2
	@touch $@

clean: ## delete the environment and everything built
	rm -rf $(VENV) build dist site .coverage* *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find fsl_basesel lightning_modules tests -name __pycache__ -type d -prune -exec rm -rf {} +
