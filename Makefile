# Everything sets itself up: a bare machine needs python3 (3.11 or later), pip and make.

VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
BUDGET ?= 45s

.PHONY: help run test lint unit bench clean

help:
	@echo "make run     a campaign of about a minute on kvcore (BUDGET=10m for longer)"
	@echo "make test    lint, types and every test"
	@echo "make bench   the benchmarks, about three minutes"
	@echo "make clean   remove what the above made"

run: $(INSTALLED)
	$(PYTHON) -m fuzz run --budget $(BUDGET)

test: lint unit

lint: $(INSTALLED)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

unit: $(INSTALLED)
	$(PYTHON) -m pytest

bench: $(INSTALLED)
	$(PYTHON) -m pytest properties/benchmarks --benchmark-only --override-ini addopts="--import-mode=importlib -s"

clean:
	rm -rf $(VENV) fuzz-out .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info

$(INSTALLED): pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,dev,cuda]'
	@touch $(INSTALLED)
