"""Each room says in its head what it imports, and keeps to it. Chains of imports stay short, files stay readable.

A room is a package. The head of its `__init__` has a line `Imports: ...` that names other rooms of this repository and
libraries; the standard library and the room itself go without saying. A module that needs more than its room says so
in a line `Also imports: ...` of its own head. Sources are read, so that an import inside a function counts too.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("kvcore", "reference", "properties", "fuzz")
STANDARD = set(sys.stdlib_module_names)
TESTING = ("tests", "benchmarks")
"""Folders whose modules may import whatever they test."""


def sources(root: Path = ROOT) -> dict[str, Path]:
    """Every module of the repository by its dotted name, tests aside."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if not any(part in TESTING for part in parts):
                found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = sources()


@functools.cache
def tree(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def package_of(name: str) -> str:
    """The room that a module is in; a package's own name for its `__init__`."""
    return name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]


def imported(name: str) -> set[str]:
    """What a module imports, by full dotted names: modules where they are modules of ours, else their packages."""
    found = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package_of(name).split(".")
            head = above[: len(above) - node.level + 1] if node.level else []
            base = ".".join(head + ([node.module] if node.module else []))
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                found.add(deeper if deeper in MODULES else base)
    return found


def stated(name: str, word: str) -> set[str]:
    """What the head of a module says after `word`, up to the full stop."""
    match = re.search(rf"^{word}: (.*?)\.$", ast.get_docstring(tree(name)) or "", re.MULTILINE | re.DOTALL)
    return set(re.split(r",\s+", match.group(1))) if match else set()


def allowed(name: str) -> set[str]:
    room = package_of(name)
    return {room, *stated(room, "Imports"), *stated(name, "Also imports")}


def covered(target: str, names: set[str]) -> bool:
    """Whether one of `names` is the package of `target` or above it."""
    return any(target == name or target.startswith(f"{name}.") for name in names)


@pytest.mark.parametrize("name", sorted(name for name in MODULES if MODULES[name].name == "__init__.py"))
def test_a_room_says_what_it_imports(name: str) -> None:
    assert stated(name, "Imports"), f"the head of {MODULES[name].relative_to(ROOT)} has no line 'Imports: ....'"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_imports_only_what_its_room_says(name: str) -> None:
    ours = {target for target in imported(name) if target.partition(".")[0] not in STANDARD | {"__future__"}}
    beyond = sorted(target for target in ours if not covered(target, allowed(name)))
    assert not beyond, f"{name} imports {', '.join(beyond)}; its room says {', '.join(sorted(allowed(name)))}"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_what_a_head_allows_is_needed(name: str) -> None:
    """A permission that nobody uses is a promise that nothing checks."""
    if MODULES[name].name == "__init__.py":
        used = {target for other in MODULES if package_of(other) == name for target in imported(other)}
        permitted = stated(name, "Imports") - {"nothing"}
    else:
        used, permitted = imported(name), stated(name, "Also imports")
    assert {word for word in permitted if not any(covered(target, {word}) for target in used)} == set()


def rooms() -> dict[str, set[str]]:
    """The rooms of fuzz, and which of the others each imports."""
    found: dict[str, set[str]] = {}
    for name in MODULES:
        room = ".".join(name.split(".")[:2])
        if name.startswith("fuzz.") and (ROOT / "fuzz" / room.partition(".")[2]).is_dir():
            others = {".".join(target.split(".")[:2]) for target in imported(name) if target.startswith("fuzz.")}
            found.setdefault(room, set()).update(others - {room})
    return found


def test_the_rooms_of_fuzz_form_no_circle() -> None:
    left = rooms()
    while leaves := [room for room, others in left.items() if not others & set(left)]:
        for room in leaves:
            del left[room]
    assert left == {}


DEEPEST = 8


def longest(name: str, seen: tuple[str, ...] = ()) -> tuple[str, ...]:
    assert name not in seen, f"a circle of imports: {' -> '.join((*seen, name))}"
    below = sorted(target for target in imported(name) if target in MODULES and target.startswith("fuzz"))
    return max(((name, *chain(target, (*seen, name))) for target in below if target != name), key=len, default=(name,))


_chains: dict[str, tuple[str, ...]] = {}


def chain(name: str, seen: tuple[str, ...] = ()) -> tuple[str, ...]:
    if name not in _chains:
        _chains[name] = longest(name, seen)
    return _chains[name]


def test_no_chain_of_imports_in_fuzz_is_deep() -> None:
    deepest = max((chain(name) for name in MODULES if name.startswith("fuzz")), key=len)
    assert len(deepest) <= DEEPEST, " -> ".join(deepest)


@pytest.mark.parametrize("name", sorted(name for name in MODULES if name.startswith("reference")))
def test_a_specification_is_short(name: str) -> None:
    lines = len(MODULES[name].read_text(encoding="utf-8").splitlines())
    assert lines <= 400, f"{name} has {lines} lines"
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.ClassDef):
            assert (node.end_lineno or 0) - node.lineno < 300, f"{name}.{node.name} is too long to be read"


@pytest.mark.parametrize(
    "modules",
    [
        "fuzz.engines.walk, fuzz.engines.registry, fuzz.runs.perform, fuzz.runs.counterexample, fuzz.findings.shrink",
        "fuzz.engines.swarm, fuzz.engines.hypothesis, fuzz.engines.kernels, fuzz.engines.explore, fuzz.engines.atheris",
        "fuzz.engines.trace, fuzz.campaign.campaign, fuzz.campaign.supervisor, fuzz.campaign.cluster",
        "fuzz.campaign.history, fuzz.findings.store, fuzz.findings.baseline",
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


def test_the_core_loads_only_numpy_and_xxhash() -> None:
    code = "import sys\nbefore = set(sys.modules)\nimport kvcore\nprint({*sys.modules} - before)"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    loaded = {name.partition(".")[0] for name in ast.literal_eval(out)}
    assert {"typer", "rich", "jinja2", "torch", "properties", "fuzz", "reference"} & loaded == set()


def test_an_import_that_no_head_allows_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "slots.py"
    file.write_text('"""A module."""\n\n\ndef hidden() -> None:\n    import kvcore.pool\n')
    monkeypatch.setitem(MODULES, "reference.extra", file)
    assert [target for target in imported("reference.extra") if not covered(target, allowed("reference.extra"))] == [
        "kvcore.pool"
    ]


@pytest.mark.parametrize(
    "room", ["fuzz", "properties", *sorted(rooms().keys() - {"fuzz.cli", "fuzz.gpu", "fuzz.tools", "fuzz.zoo"})]
)
def test_a_room_names_each_of_its_files(room: str) -> None:
    """Whoever opens a folder learns from its first page what each file is for."""
    head = ast.get_docstring(tree(room)) or ""
    words = set(re.findall(r"\w+", head.partition("Imports:")[0]))
    inside = {name.removeprefix(f"{room}.").partition(".")[0] for name in MODULES if name.startswith(f"{room}.")}
    assert sorted(inside - words - {"__main__", "tests"}) == []
