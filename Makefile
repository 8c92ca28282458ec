# make demo | make test | make lint: each creates .venv when it is missing and installs nothing twice.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test lint format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   run the whole label pipeline on the bundled sample"
	@echo "make test   run the tests"
	@echo "make lint   check format, lint and types"
	@echo "make format mend format and what lint can mend"

# Written last: an installation that was cut short is taken up again.
$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# The pip that comes with Python 3.10 and 3.11 searches for very long among so many packages.
	$(BIN)/python -m pip install --disable-pip-version-check --upgrade 'pip>=24'
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[offline,dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/hgld demo

test: $(VENV)/.installed
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
