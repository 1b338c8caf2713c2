# Every target sets itself up in .venv: it needs Python >= 3.11, make and pip's network, nothing else.
# Another interpreter:  make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.NOTPARALLEL:  # two pips in one environment would collide
.PHONY: help test reproduce bench docs format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: $(VENV)/.installed-dev  ## lint, types, import direction, tests and doctests
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports --no-logo
	$(RUN) -m pytest

reproduce: $(VENV)/.installed-experiments  ## the paper, and a report in reproduction/; ARGS=--full for all repetitions
	$(VENV)/bin/varopt reproduce $(ARGS)

bench: $(VENV)/.installed-bench $(VENV)/.tried-compiled  ## speed and memory as ratios; SUITE=terms for one suite, QUICK=1 for small sizes
	$(RUN) -m benchmarks $(if $(SUITE),--suite $(SUITE)) $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

docs: $(VENV)/.installed-docs  ## the documentation, in docs/_build/html; a warning or an undocumented name fails it
	$(RUN) -m sphinx -W --keep-going --quiet -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

format: $(VENV)/.installed-dev  ## rewrite the code in the project's format
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

clean:  ## remove what the targets built, except .venv and benchmark results
	rm -rf build dist docs/_build docs/reference/_generated
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp per set of extras, so that a repeated run installs nothing.
$(VENV)/.installed-core: pyproject.toml src/varopt/_version.py $(VENV)/.created
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-%: pyproject.toml src/varopt/_version.py $(VENV)/.created
	$(INSTALL) --editable '.[$*]'
	@touch $@

# A rival that builds from source: where there is no C compiler the benchmarks report it as absent.
$(VENV)/.tried-compiled: pyproject.toml $(VENV)/.created
	$(INSTALL) --editable '.[compiled]' || echo "No rival that needs a C compiler, then."
	@touch $@

# Some distributions ship Python without ensurepip; there, an existing pip installs the environment's own.
$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "varopt needs Python 3.11 or newer, and there is no '$(PYTHON)' here; name one with: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "varopt needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1); name another with: make PYTHON=/path/to/python" >&2; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	  else $(PYTHON) -m venv --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(RUN) install --quiet --disable-pip-version-check pip; fi
	@touch $@
