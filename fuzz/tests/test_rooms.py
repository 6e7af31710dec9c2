"""Imports run one way: kvcore and reference know nobody; properties knows reference; fuzz knows properties.

Read from the source of every module, so that an import inside a function counts too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("kvcore", "reference", "properties", "fuzz")
MODULES = sorted(
    path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py") if "traces" not in path.parts
)

KNOWS = {
    "kvcore": set(),
    "reference": set(),
    "properties": {"reference"},
    "fuzz": {"properties", "reference"},
}
"""What a room may import besides itself."""

EXCEPTIONS = {
    "properties/targets/kvcore.py": {"kvcore"},  # the adapter of this core
    "properties/targets/kvcore_kernels.py": {"kvcore", "numpy", "torch"},
    "properties/targets/vllm.py": {"vllm", "torch"},  # both inside a function
    "properties/targets/sglang.py": {"sglang", "torch", "transformers"},  # when the first target is made
    "properties/tests/test_vllm.py": {"vllm"},  # inside tests that are skipped where it is not installed
    "properties/tests/test_vllm_scheduler.py": {"vllm"},  # the same
    # vLLM and SGLang themselves are imported by name, when asked for: they are never needed.
    "properties/targets/vllm_kernels.py": {"numpy", "torch", "triton"},
    "properties/targets/sglang_kernels.py": {"numpy", "torch"},
    "fuzz/engines/atheris.py": {"atheris"},  # an optional extra, in a process of its own
    "fuzz/campaign/cluster.py": {"ray"},  # optional extras, both
    "fuzz/engines/hypothesis_database.py": {"hypothesis", "redis"},
    "fuzz/audit/planting.py": {"kvcore"},  # plants faults in its source
    "kvcore/storage.py": {"torch"},
    "kvcore/attention.py": {"torch"},
    "kvcore/kernels/calls.py": {"torch", "triton"},
    "kvcore/kernels/cpu.py": {"torch"},
    "kvcore/kernels/attention.py": {"triton"},
    "kvcore/kernels/cache.py": {"triton"},
}
BENCHMARKS = "fuzz/benchmarks"  # measure the core itself too
ATTENTION = "properties/attention/"  # checks kernels, with what they are made of
GPU = "fuzz/gpu/"  # runs kvcore's kernels on a device

STANDARD = set(sys.stdlib_module_names)
LIBRARIES = {
    "kvcore": {"numpy", "xxhash"},
    "reference": set(),
    "properties": set(),
    "fuzz": {"numpy", "typer", "rich", "jinja2"},
}
MAY_KNOW_HYPOTHESIS = (
    "properties/machines/",
    "properties/suite/",
    "fuzz/engines/hypothesis.py",
    "fuzz/engines/atheris.py",
)


def imported(path: Path) -> set[str]:
    """Top-level names that a module imports, absolutely or relatively."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                names.add(path.parts[0])
            elif node.module:
                names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_imports_only_what_its_room_may_know(path: Path) -> None:
    room = path.parts[0]
    text = path.as_posix()
    allowed = STANDARD | {room} | KNOWS[room] | LIBRARIES[room] | EXCEPTIONS.get(text, set())
    if "tests" in path.parts or path.name == "plugin.py" or text.startswith(("properties/suite", BENCHMARKS)):
        allowed |= {"pytest", "numpy"} if room != "reference" else {"pytest"}
    if text.startswith(BENCHMARKS):
        allowed |= {"kvcore", "fuzz", "xxhash", "hypothesis"}
    if text.startswith("fuzz/tests/"):
        allowed |= {"kvcore", "torch"}  # plants faults in it
        allowed |= {"redis", "yaml"}  # where they are installed
    if text.startswith("kvcore/tests/"):
        allowed |= {"torch", "triton", "typer"}
    if text.startswith(ATTENTION):
        allowed |= {"numpy", "torch", "triton"}
    if text.startswith(GPU):
        allowed |= {"kvcore", "torch", "triton", "matplotlib"}
    if text.startswith(MAY_KNOW_HYPOTHESIS) or ("tests" in path.parts and room != "reference"):
        allowed.add("hypothesis")
    assert imported(path) <= allowed


@pytest.mark.parametrize(
    "modules",
    [
        "fuzz.engines.walk, fuzz.engines.registry, fuzz.runs.perform, fuzz.runs.counterexample, fuzz.findings.shrink",
        "fuzz.engines.swarm, fuzz.engines.hypothesis, fuzz.engines.kernels, fuzz.engines.explore, fuzz.engines.atheris",
        "fuzz.show.timeline, fuzz.traces.trace, fuzz.engines.trace",
        "fuzz.campaign.worker, fuzz.campaign.supervisor, fuzz.campaign.cluster, fuzz.campaign.campaign",
        "fuzz.findings.store, fuzz.findings.baseline, fuzz.campaign.history, fuzz.campaign.ci",
        "fuzz.cli",
        "properties.session, properties.operations, properties.target, properties.laws, properties.targets.kvcore",
        "kvcore",
    ],
)
def test_replay_and_the_walk_load_neither_hypothesis_nor_torch(modules: str) -> None:
    heavy = {"hypothesis", "torch", "triton", "pytest", "ray", "redis"}
    code = f"import sys, {modules}\nprint(sorted({heavy} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_the_check_can_fail(tmp_path: Path) -> None:
    source = ROOT / "reference" / "judge.py"
    tree = ast.parse(source.read_text(encoding="utf-8") + "\nimport kvcore\n")
    assert any(isinstance(node, ast.Import) and node.names[0].name == "kvcore" for node in ast.walk(tree))
    assert "hypothesis" in imported(Path("properties/machines/allocator.py"))
