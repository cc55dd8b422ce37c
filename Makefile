# Every target works on a fresh clone: it first creates .venv with the versions in constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
STAMP := $(VENV)/.installed

.PHONY: install demo test test-slow lint types imports bench docs results browser audit clean
install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,faiss]"
	@touch $@

demo: $(STAMP)
	$(BIN)/relatum demo --out demo --overwrite

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

# The layers of pyproject.toml: which package may import which.
imports: $(STAMP)
	$(BIN)/lint-imports

test: lint types
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term --cov-fail-under=90

# Browser tests need chromium and chromedriver; without them they are skipped with a reason.
browser:
	@command -v chromedriver >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && apt-get install -y -qq chromium chromium-driver >/dev/null; } || \
	  echo "no chromium here: browser tests will be skipped"

test-slow: $(STAMP) browser
	$(BIN)/python -m pytest -n 2 -m "slow or not slow"

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py

# Writes the generated pages, and builds the site into site/; a broken link is an error.
docs: $(STAMP) $(VENV)/.docs
	$(BIN)/python docs/errors.py
	$(BIN)/python docs/build.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

$(VENV)/.docs: $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[docs]"
	@touch $@

results: $(STAMP)
	$(BIN)/python results/build.py

# Known vulnerabilities (needs the network; says so where there is none) and licences of the installed packages.
audit: $(STAMP)
	@$(BIN)/pip install --quiet pip-audit 2>/dev/null || true
	$(BIN)/python tools/audit.py

clean:
	rm -rf $(VENV) demo build dist site
