# Everything sets itself up: a bare machine needs python3 (3.11 or later), pip and make.

VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
BUDGET ?= 45s
# Processes that run the tests.
TESTERS ?= auto
OLD := .venv-triton-3.6
MUTANTS := .venv-mutants
# Processes that try mutants.
MUTATORS ?= 1

.PHONY: help run test lint unit bench gates gates-3.6 kernel-faults mutants clean

help:
	@echo "make run     a campaign of about a minute on kvcore (BUDGET=10m for longer)"
	@echo "make test    lint, types and every test"
	@echo "make bench   the benchmarks, about three minutes"
	@echo "make gates   compile every shipped kernel for sm_80, sm_90 and sm_100, and compare with docs/gates.json"
	@echo "make gates-3.6        only compile them, under Triton 3.6"
	@echo "make kernel-faults    the table of planted kernel faults, docs/kernel-faults.md (long)"
	@echo "make mutants          mutation tests of the allocator and the reference, docs/mutants.md (an hour on one core; goes on"
	@echo "                      where it was stopped; MUTATORS=4 for more processes)"
	@echo "make clean   remove what the above made"

run: $(INSTALLED)
	$(PYTHON) -m fuzz run --budget $(BUDGET)

test: lint unit

lint: $(INSTALLED)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

unit: $(INSTALLED)
	$(PYTHON) -m pytest -n $(TESTERS) --maxprocesses 8

bench: $(INSTALLED)
	$(PYTHON) -m pytest properties/benchmarks --benchmark-only --override-ini addopts="--import-mode=importlib -s"

gates: $(INSTALLED)
	$(PYTHON) -m kvcore.kernels.gates --check

# GPU machines still carry Triton 3.6 with torch 2.11.
gates-3.6: $(OLD)/.installed
	$(OLD)/bin/python -m kvcore.kernels.gates --compile-only

kernel-faults: $(INSTALLED)
	$(PYTHON) -m fuzz.tests.kernel_layers --write docs/kernel-faults.md

# Without torch, which the suites do not need and which makes forks slow.
mutants: $(MUTANTS)/.installed
	$(MUTANTS)/bin/python -m fuzz.mutants run --max-children $(MUTATORS)
	$(MUTANTS)/bin/python -m fuzz.mutants report --write

clean:
	rm -rf $(VENV) $(OLD) $(MUTANTS) fuzz-out .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info

$(INSTALLED): pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,dev,cuda,ray,redis]'
	@touch $(INSTALLED)

$(OLD)/.installed: pyproject.toml constraints.txt
	python3 -m venv $(OLD)
	$(OLD)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt numpy xxhash typer rich torch
	$(OLD)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps triton==3.6.0
	@touch $(OLD)/.installed

$(MUTANTS)/.installed: pyproject.toml constraints.txt
	python3 -m venv $(MUTANTS)
	$(MUTANTS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,mutants]'
	@touch $(MUTANTS)/.installed
