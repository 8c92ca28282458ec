# Every target creates .venv if it is missing, and installs nothing twice.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test test-slow examples fuzz docs lint format release-check clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      run the whole label pipeline on the bundled sample"
	@echo "make test      run the fast tests, the same ones with the same examples every time"
	@echo "make test-slow run the tests that make test leaves out: whole pipelines, kills and resumes"
	@echo "make examples  run the examples of the documents, and write their outputs to the pages"
	@echo "make fuzz      run the property tests with new random examples"
	@echo "make docs      build the site in docs/_build; warnings are errors"
	@echo "make lint      check format, lint, types and the order of the rooms"
	@echo "make release-check  build wheel and sdist, and try each in an empty environment (downloads PyTorch)"
	@echo "make format    fix the format, and what the linter can fix"

# Touched last: an interrupted installation is resumed.
$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[offline,dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/hgld demo

# Workers compute in one thread each. Compiled modules are kept even where a container says otherwise. Files start in the
# order of their names, not those with most tests first: the long ones have few.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

# One worker more than two cores can run, as tests also wait, and no more, as each imports all tests.
test: $(VENV)/.installed
	HYPOTHESIS_PROFILE=quick $(PYTEST) -m "not slow" -n 3 $(PYTEST_ARGS)

# Slow tests start processes of their own.
test-slow: $(VENV)/.installed
	$(PYTEST) -m slow -n 2 $(PYTEST_ARGS)

# One page: make examples PYTEST_ARGS="-k scrape".
examples: $(VENV)/.installed
	$(PYTEST) tests/examples/test_pages.py -m slow --write-outputs $(PYTEST_ARGS)

fuzz: $(VENV)/.installed
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -m hypothesis $(PYTEST_ARGS)

docs: $(VENV)/.installed
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html -c docs . docs/_build

lint: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

release-check: $(VENV)/.installed
	$(BIN)/python -m tests.release_check

clean:
	rm -rf $(VENV) build dist docs/_build docs/jupyter_execute docs/reference/generated .pytest_cache .mypy_cache .ruff_cache
