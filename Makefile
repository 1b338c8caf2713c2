# Every target sets itself up in .venv: it needs Python >= 3.11, make and pip's network, nothing else.
# Another interpreter:  make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
FLOORS := .venv-floors
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.NOTPARALLEL:  # two pips in one environment would collide
.PHONY: help test test-nn test-floors coverage fuzz reproduce bench docs pages dist format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: $(VENV)/.installed-dev  ## lint, types, import direction, tests and doctests
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports --no-logo
	$(RUN) -m pytest -n auto

test-floors: $(FLOORS)/.installed  ## the tests with the oldest versions that pyproject.toml allows, in an environment of their own
	$(FLOORS)/bin/python -m pytest -n auto $(ARGS)

coverage: $(VENV)/.installed-dev  ## the tests, and which lines they run
	$(RUN) -m pytest -n auto --cov --cov-report=term --cov-report=xml

fuzz: $(VENV)/.installed-dev  ## random problems against exact arithmetic; BUDGET=300 seconds, SEED=0, WORKERS=1, ONLY=extreme for one part
	$(RUN) -m fuzz $(if $(BUDGET),--seconds $(BUDGET)) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)") $(if $(WORKERS),--workers $(WORKERS))

test-nn: $(VENV)/.installed-dev $(VENV)/.installed-layers  ## the tests with PyTorch, JAX and Dask, which make test skips where they are absent
	$(RUN) -m pytest -n auto tests/nn src/varopt/nn tests/optimize/test_devices.py tests/solvers/discrete/test_torch.py tests/places/test_dask.py

reproduce: $(VENV)/.installed-experiments  ## the paper, and a report in reproduction/; ARGS=--full for all repetitions
	$(VENV)/bin/varopt reproduce $(ARGS)

bench: $(VENV)/.installed-bench $(VENV)/.tried-compiled  ## speed and memory as ratios; SUITE=terms for one suite, QUICK=1 for small sizes
	$(RUN) -m benchmarks $(if $(SUITE),--suite $(SUITE)) $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

docs: $(VENV)/.installed-docs  ## the site with its gallery, in docs/_build/html; a warning, a broken link or an undocumented name fails it
	rm -rf docs/_build  # pages of names that are gone would stay
	$(RUN) -m sphinx -W --keep-going --quiet -b html docs docs/_build/html
	$(RUN) tools/check_links.py docs/_build/html
	@echo "Open docs/_build/html/index.html"

docs/_build/html/index.html:
	$(MAKE) docs

pages: docs/_build/html/index.html  ## every page of the site in a browser, wide and narrow, light and dark; needs a Chromium
	$(RUN) tools/check_pages.py docs/_build/html

dist: $(VENV)/.installed-dev  ## sdist and wheel in dist/, checked and installed in a clean environment
	rm -rf dist build/clean
	$(INSTALL) build twine
	$(RUN) -m build --outdir dist
	$(RUN) -m twine check --strict dist/*
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build && clean/bin/python ../tools/check_installed.py

format: $(VENV)/.installed-dev  ## rewrite the code in the project's format
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

clean:  ## remove what the targets built, except .venv and benchmark results
	rm -rf build dist docs/_build docs/reference/_generated docs/gallery $(FLOORS)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp per set of extras, so that a repeated run installs nothing.
$(VENV)/.installed-core: pyproject.toml src/varopt/_version.py $(VENV)/.created
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-%: pyproject.toml src/varopt/_version.py $(VENV)/.created
	$(INSTALL) --editable '.[$*]'
	@touch $@

# The oldest versions of everything that pyproject.toml names, but for what only lints.
$(FLOORS)/.installed: pyproject.toml tools/floors.py
	rm -rf $(FLOORS)
	$(PYTHON) -m venv $(FLOORS)
	$(PYTHON) tools/floors.py > $(FLOORS)/constraints.txt
	$(FLOORS)/bin/python -m pip install --quiet --disable-pip-version-check -c $(FLOORS)/constraints.txt \
	  --editable '.[test,experiments,parquet,optuna,dimod]' threadpoolctl
	@touch $@

# PyTorch by an exact version: where the package index has a build of it for the processor alone, that is taken. Without a
# version pip may take the newest, which on Linux brings gigabytes of CUDA. Another one:  make test-nn LAYERS='torch==... jax'
LAYERS ?= torch==2.13.0 jax optax dask[array,dataframe] distributed
$(VENV)/.installed-layers: pyproject.toml $(VENV)/.created
	$(INSTALL) $(foreach layer,$(LAYERS),'$(layer)')
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
