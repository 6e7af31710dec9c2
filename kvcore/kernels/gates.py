"""Static gates: what the compiler makes of every launch that kvcore does, judged without a GPU.

    python -m kvcore.kernels.gates --check      # every configuration, against the committed table

The real calls are made, on small CPU tensors, with each kernel replaced by a recorder; Triton's own JIT then
specialises and compiles what was recorded, for a GPU that is not there. So what is judged is what is launched:
signature, alignment hints, constants and options are nobody's second copy.

A *report* holds what was read of one compiled kernel (registers, spills, copies, matrix instructions, ...); a *gate* is
a function of one report that says what is wrong with it, or nothing. The reports are committed as docs/gates.json, so
that a change which costs more than 5 % is seen in review.

This room may not know: a GPU, a timing, any number but the compiler's.
"""

from __future__ import annotations

import contextlib
import math
import re
import subprocess
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from .. import batch
from ..attention import PagedAttention
from ..storage import KVStorage, StorageConfig
from . import calls
from .spec import AttentionSpec, Tiling, Tree, tilings

__all__ = [
    "CONFIGURATIONS",
    "GATES",
    "Configuration",
    "Launch",
    "Report",
    "app",
    "compile_launch",
    "drifts",
    "examine",
    "failures",
    "read_sass",
    "read_ttir",
    "recorded",
]

ARCHITECTURES = (80, 90, 100)
TOLERANCE = 0.05
"""Of registers, shared memory and instructions against the committed table."""

SHARED_LIMIT = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}
"""Bytes of shared memory that one program can have."""

_SHARED_SM = {80: 164 * 1024, 90: 228 * 1024, 100: 228 * 1024}
_DOCS = Path(__file__).resolve().parents[2] / "docs"


# ---- what is shipped -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Configuration:
    """One way to use kvcore, and which of its launches are compiled for it.

    dtype: of queries. cached: of the cache, if not the same. kernels: of store, attend, combine, copy, audit.
    features: of window, softcap, alibi. hot: compiled by `make test`, and held to every gate.
    """

    dtype: str = "bfloat16"
    cached: str | None = None
    head_dim: int = 128
    group: int = 4
    block_size: int = 16
    features: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ("attend",)
    hot: bool = False

    @property
    def name(self) -> str:
        cache = "+fp8" if self.cached else ""
        parts = (f"{_SHORT[self.dtype]}{cache}", f"D{self.head_dim}", f"G{self.group}", f"B{self.block_size}")
        return " ".join((*parts, *self.features))


_SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_FP8 = "float8_e4m3"
_DIMS = (64, 72, 80, 96, 128, 256)


def _cover() -> Iterator[Configuration]:
    """Not the full product: each dtype with each head dim, and the other axes around the common case."""
    everything = ("store", "attend", "combine", "copy", "audit")
    yield Configuration(kernels=everything, hot=True)
    yield Configuration(cached=_FP8, kernels=("store", "attend", "combine", "copy"), hot=True)
    for dtype in _SHORT:
        for dim in _DIMS:
            for cached in (None, _FP8) if dtype == "bfloat16" else (None,):
                if dim != 128 or dtype != "bfloat16":
                    yield Configuration(dtype, cached, dim, kernels=("store", "attend", "combine"))
    for dtype in ("float16", "float32"):
        yield Configuration(dtype, _FP8, kernels=("store", "attend"))
    for dim in (16, 192):
        yield Configuration(head_dim=dim, kernels=("store", "attend", "combine"))
    for group in (1, 5, 8, 16, 32, 128):
        yield Configuration(group=group, kernels=("attend", "combine"))
    for group in (1, 8):
        yield Configuration(cached=_FP8, group=group)
    yield Configuration(head_dim=64, group=1)
    yield Configuration("float32", group=1)
    for cached in (None, _FP8):
        yield Configuration(cached=cached, block_size=1, kernels=("store", "attend", "copy", "audit"))
    yield Configuration("float32", block_size=1, kernels=("store", "attend", "copy"))
    yield Configuration(block_size=256, kernels=("store", "attend", "copy"))
    for features in (("window",), ("softcap",), ("alibi",), ("window", "softcap", "alibi")):
        yield Configuration(features=features)
    yield Configuration(head_dim=256, group=2, features=("window", "softcap"))  # Gemma 2
    yield Configuration("float16", head_dim=64, group=1, features=("alibi",))  # BLOOM, MPT
    yield Configuration(cached=_FP8, group=8, features=("window",))
    yield Configuration("float32", head_dim=64, features=("window", "softcap", "alibi"))


CONFIGURATIONS = tuple(_cover())


# ---- recording and compiling -----------------------------------------------------------------------------------------


class Launch(NamedTuple):
    """One launch as it was made: the jit function, its grid and its arguments, options included."""

    name: str
    function: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


class _Recorder:
    """Stands in for a jit function: `recorder[grid](...)` notes the launch."""

    def __init__(self, function: Any, launches: list[Launch]) -> None:
        self.function = function
        self.launches = launches

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, **keywords: Any) -> None:
            self.launches.append(Launch(self.function.__name__, self.function, grid, arguments, keywords))

        return launch


@contextlib.contextmanager
def _recording(sm: int) -> Iterator[list[Launch]]:
    """Within, kvcore believes that CPU tensors are launched for, on a GPU of capability `sm`."""
    from . import attention, cache

    launches: list[Launch] = []
    with contextlib.ExitStack() as stack:
        for module in (attention, cache):
            for name in module.__all__:
                stack.enter_context(mock.patch.object(module, name, _Recorder(getattr(module, name), launches)))
        stack.enter_context(mock.patch.object(calls, "_launches", lambda device: True))
        stack.enter_context(mock.patch.object(calls, "_has_fp8", lambda device: sm >= 89))
        yield launches


def recorded(
    configuration: Configuration, sm: int, *, tree: Tree | None = None, tiles: tuple[Tiling, ...] | None = None
) -> list[Launch]:
    """What kvcore launches for a long prompt, a decode, a copy and an audit, on a GPU of capability `sm`.

    "attend small" serves both schedules: whether a program computes a leaf or a whole context is a runtime value.
    tree, tiles: others than what is shipped, for tuning.
    """
    heads, size = 8, configuration.block_size
    length = 301  # no multiple of 16, like most: the table's row stride then has no alignment, as in practice
    columns = -(-length // size) | 1
    storage = KVStorage(
        StorageConfig(1, 2 * columns, size, heads, configuration.head_dim, configuration.cached or configuration.dtype),
        "cpu",
        tags=True,
    )
    features = configuration.features
    spec = AttentionSpec(
        heads * configuration.group,
        heads,
        configuration.head_dim,
        window=200 if "window" in features else None,
        softcap=30.0 if "softcap" in features else None,
        slopes=(0.5,) * (heads * configuration.group) if "alibi" in features else None,
    )
    dtype: torch.dtype = getattr(torch, configuration.dtype)
    tiles = tiles or tilings(configuration.head_dim, dtype.itemsize, configuration.group, sm)
    attention = PagedAttention(spec, storage, dtype=dtype, tree=tree, tiles=tiles)
    tables = [array("i", range(start, start + columns)) for start in (0, columns)]
    step = batch.build(tables, [0, length - 1], [length, length], (), size)
    tokens = step.num_tokens
    queries = torch.empty(tokens, spec.num_heads, spec.head_dim, dtype=dtype)
    new = torch.empty(tokens, heads, spec.head_dim, dtype=dtype)
    with _recording(sm) as launches:
        plan = attention.plan(step, schedule="split")
        attention(0, queries, new, new, plan)
        storage.copy([(0, 1)])
        assert storage.tags is not None
        expected = torch.zeros(length, dtype=torch.int64)
        begins = torch.tensor([0, length, length])
        calls.audit(storage.tags, plan.tables, expected, begins, block_size=size)
    seen: Counter[str] = Counter()
    result = []
    for launch in launches:
        kernel = launch.name.split("_")[0]
        name = kernel
        if kernel in ("attend", "combine"):
            name = f"{kernel} {('small', 'large')[seen[kernel]]}"
            seen[kernel] += 1
        if kernel in configuration.kernels:
            result.append(launch._replace(name=name))
    return result


class _Target:
    """As much of a Triton driver as its JIT asks for to compile: which GPU."""

    def __init__(self, sm: int) -> None:
        self.sm = sm

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.sm, 32)

    def get_current_device(self) -> int:
        return self.sm  # each has its own in-process cache of kernels

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_launch(launch: Launch, sm: int, **options: Any) -> Any:
    """What Triton's JIT compiles for `launch` on a GPU of capability `sm`. 0.1 to 3 seconds, or Triton's cache."""
    from triton.runtime.driver import driver

    driver.set_active(_Target(sm))  # type: ignore[arg-type]
    return launch.function.run(*launch.arguments, grid=launch.grid, warmup=True, **{**launch.keywords, **options})


# ---- reading what was compiled ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What was read of one compiled launch.

    tiling: rows, tile, warps, stages. registers: of a thread. stack, shared: bytes. spills: loads and stores of local
    memory (LDL, STL). copies, loads, stores: global to shared memory, from global and to global, bits of one thread ->
    instructions. table_copies: of the copies, how many instructions the block tables explain. matrix: opcode ->
    instructions. floats: of FFMA, FADD, FMUL, as launched; fused: with fusion on. narrow: pointers of K/V whose address
    comes through a 32-bit multiplication. unmasked: pointers of which a tensor is read or written without a mask, or
    of the table and K/V, with one that does not know the context. stable: two compiles gave the same code. error: of
    the compiler; nothing else is known then.
    """

    configuration: str
    kernel: str
    sm: int
    hot: bool = False
    tiling: str = ""
    warps: int = 4
    registers: int = 0
    stack: int = 0
    spills: int = 0
    shared: int = 0
    instructions: int = 0
    copies: dict[int, int] = field(default_factory=dict)
    table_copies: int = 0
    loads: dict[int, int] = field(default_factory=dict)
    stores: dict[int, int] = field(default_factory=dict)
    matrix: dict[str, int] = field(default_factory=dict)
    floats: dict[str, int] = field(default_factory=dict)
    fused: dict[str, int] | None = None
    atomics: int = 0
    narrow: tuple[str, ...] = ()
    unmasked: tuple[str, ...] = ()
    stable: bool | None = None
    error: str | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        return self.configuration, self.kernel, self.sm

    @property
    def programs(self) -> int:
        """How many run at once on one multiprocessor, by registers, shared memory and warps."""
        by_registers = 65536 // (max(8, -(-self.registers // 8) * 8) * 32 * self.warps)
        by_shared = _SHARED_SM[self.sm] // (self.shared + 1024)
        return min(by_registers, by_shared, 64 // self.warps, 32)

    def to_json(self) -> dict[str, Any]:
        """Without what has its default."""
        return {
            entry.name: value
            for entry in fields(self)
            if (value := getattr(self, entry.name)) not in ({}, (), None, False) or entry.name in ("stable", "fused")
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Report:
        data = dict(data)
        for name in ("copies", "loads", "stores"):
            data[name] = {int(width): count for width, count in data.get(name, {}).items()}
        for name in ("narrow", "unmasked"):
            data[name] = tuple(data.get(name, ()))
        return Report(**data)


_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z]\w*(?:\.\w+)*)")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")
_MATRIX = re.compile(r"(?:[A-Z]*MMA)(?:\.|$)")
_FLOATS = ("FFMA", "FFMA2", "FADD", "FADD2", "FMUL", "FMUL2")


def _opcodes(sass: str) -> Counter[str]:
    return Counter(opcode for opcode in _INSTRUCTION.findall(sass) if opcode != "NOP")  # NOP: padding at the end


def _width(opcode: str) -> int:
    """Bits of one thread that a memory instruction moves. LDGSTS.E.BYPASS.LTC128B.64 moves 64."""
    for part in reversed(opcode.split(".")[1:]):
        if re.fullmatch(r"(?:[US](?:8|16))|64|128|256", part):
            return int(part.lstrip("US"))
    return 32


def _widths(opcodes: Counter[str], *names: str) -> dict[int, int]:
    found: Counter[int] = Counter()
    for opcode, count in opcodes.items():
        if opcode.split(".")[0] in names:
            found[_width(opcode)] += count
    return dict(sorted(found.items(), reverse=True))


def _floats(opcodes: Counter[str]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for opcode, count in opcodes.items():
        if opcode.split(".")[0] in _FLOATS:
            found[opcode.split(".")[0]] += count
    return dict(sorted(found.items()))


def read_sass(sass: str) -> dict[str, Any]:
    """The fields of a `Report` that nvdisasm's text tells."""
    opcodes = _opcodes(sass)

    def total(*names: str) -> int:
        return sum(count for opcode, count in opcodes.items() if opcode.split(".")[0] in names)

    return {
        "spills": total("LDL", "STL"),
        "instructions": sum(opcodes.values()),
        "copies": _widths(opcodes, "LDGSTS"),
        "loads": _widths(opcodes, "LDG"),
        "stores": _widths(opcodes, "STG"),
        # HFMA2.MMA, which moves constants on sm_80, is none.
        "matrix": {opcode: count for opcode, count in sorted(opcodes.items()) if _MATRIX.match(opcode)},
        "floats": _floats(opcodes),
        "atomics": total("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDS"),
    }


@dataclass(eq=False)
class _Value:
    """One value of an IR text: what made it, of what."""

    op: str
    operands: list[_Value]
    line: str


_NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")
_CACHES = ("k_ptr", "v_ptr", "key_cache_ptr", "value_cache_ptr", "cache_ptr")
_LENGTHS = ("context_ptr", "slot_ptr", "cu_expected_ptr", "words")
"""What the mask of a table or of K/V has to depend on: the context, the slots to write, or a block's size."""


def read_ttir(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(narrow, unmasked) of a `Report`, by following values through Triton's IR, the one before any layout.

    The address of K/V may contain no 32-bit multiplication: `block * stride` passes 2**31 in a cache of a few GB. What
    is loaded and the position in the context end the search: they are 32-bit numbers by contract.
    """
    scopes: list[dict[str, _Value]] = [{}]
    openers: list[_Value | None] = [None]
    narrow: set[str] = set()
    unmasked: set[str] = set()

    def find(name: str) -> _Value | None:
        for scope in reversed(scopes):
            for candidate in (name, name.split("#")[0]):
                if candidate in scope:
                    return scope[candidate]
        return None

    def values(names: Iterable[str]) -> list[_Value]:
        return [value for name in names if (value := find(name)) is not None]

    for raw in text.splitlines():
        if "tt.func" in raw:
            arguments = re.findall(r"%(\w+): (?:!tt\.ptr<\w+>|\w+)", raw)
            scopes.append({f"%{name}": _Value("argument", [], name) for name in arguments})
            openers.append(None)
            continue
        line = re.sub(r"\s+loc\(.*$", "", raw.strip())
        if line.startswith("^bb"):
            scopes[-1].update({name: _Value("block argument", [], line) for name in _NAME.findall(line)})
            continue
        if line.startswith("}"):
            scopes.pop()
            opener = openers.pop()
            if line.endswith("{"):
                scopes.append({})
                openers.append(opener)
            continue
        left, equals, right = line.partition(" = ")
        if not equals or not left.startswith("%"):
            left, right = "", line
        op = right.split("(")[0].split(" ")[0].strip('"')
        if op == "scf.yield" and openers[-1] is not None:
            openers[-1].operands += values(_NAME.findall(right))
        iterated = dict(re.findall(r"(%[\w$.-]+) = (%[\w$.#-]+)", right)) if op == "scf.for" else {}
        value = _Value(op, values(name for name in _NAME.findall(right) if name not in iterated), right)
        if left:
            scopes[-1][left.split(":")[0]] = value
        if op in ("tt.load", "tt.store"):
            _judge_access(value, narrow, unmasked)
        if line.endswith("{"):
            inner = {name: _Value("iterated", [*values([start]), value], line) for name, start in iterated.items()}
            if op == "scf.for":
                inner[_NAME.findall(right)[0]] = _Value("position", [], line)
            scopes.append(inner)
            openers.append(value)
    return tuple(sorted(narrow)), tuple(sorted(unmasked))


def _cone(value: _Value, *, through_loads: bool) -> Iterator[_Value]:
    """Everything that `value` was made of."""
    seen: set[_Value] = set()
    todo = [value]
    while todo:
        current = todo.pop()
        if current not in seen:
            seen.add(current)
            yield current
            if current is value or through_loads or current.op != "tt.load":
                todo += current.operands


def _pointer(address: _Value) -> str:
    """The argument that an address was made from."""
    while address.op != "argument" and address.operands:
        address = address.operands[0]
    return address.line


def _judge_access(access: _Value, narrow: set[str], unmasked: set[str]) -> None:
    address = access.operands[0]
    pointer = _pointer(address)
    if pointer in _CACHES and any(
        part.op in ("arith.muli", "arith.shli") and not part.line.endswith("i64>") and not part.line.endswith("i64")
        for part in _cone(address, through_loads=False)
    ):
        narrow.add(pointer)
    if "tensor<" not in access.line.split(" : ")[-1]:
        return
    # tt.load pointer, mask, other; tt.store pointer, value, mask
    place = 1 if access.op == "tt.load" else 2
    if len(access.operands) <= place:
        unmasked.add(pointer)
    elif pointer in (*_CACHES, "table_ptr"):
        known = {
            _pointer(part.operands[0])
            for part in _cone(access.operands[place], through_loads=True)
            if part.op == "tt.load"
        }
        known |= {part.line for part in _cone(access.operands[place], through_loads=True) if part.op == "argument"}
        if not known.intersection(_LENGTHS):
            unmasked.add(pointer)


def _tool(name: str, *arguments: str) -> str:
    """The output of one of the CUDA tools that ship with Triton."""
    from triton import knobs

    path = getattr(knobs.nvidia, name).path
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def _missing_tools(names: Iterable[str]) -> list[str]:
    from triton import knobs

    missing = []
    for name in names:
        try:
            getattr(knobs.nvidia, name)
        except RuntimeError:
            missing.append(name)
    return missing


def _disassemble(cubin: bytes) -> tuple[str, str]:
    """(resource usage, SASS)"""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return _tool("cuobjdump", "-res-usage", file.name), _tool("nvdisasm", "-c", file.name)


def examine(launch: Launch, configuration: Configuration, sm: int, *, compile_only: bool = False) -> Report:
    """Compile `launch` and read what came out. A compile error becomes a report. A few seconds at most."""
    keywords = launch.keywords
    warps = keywords.get("num_warps", 4)
    tiling = ""
    if "ROWS" in keywords:
        tile = f"x{keywords['TILE']}" if "TILE" in keywords else ""
        stages = f" s{keywords['num_stages']}" if "num_stages" in keywords else ""
        tiling = f"{keywords['ROWS']}{tile} w{warps}{stages}"
    known: dict[str, Any] = {
        "configuration": configuration.name,
        "kernel": launch.name,
        "sm": sm,
        "hot": configuration.hot,
        "tiling": tiling,
        "warps": warps,
    }
    try:
        kernel = compile_launch(launch, sm)
    except Exception as error:
        return Report(**known, error=f"{type(error).__name__}: {error}"[:500])
    known["shared"] = kernel.metadata.shared
    if compile_only:
        return Report(**known)
    usage, sass = _disassemble(kernel.asm["cubin"])
    found = _USAGE.search(usage)
    assert found is not None, usage
    known["registers"], known["stack"] = map(int, found.groups())
    known |= read_sass(sass)
    known["narrow"], known["unmasked"] = read_ttir(kernel.asm["ttir"])
    copies = len(re.findall(r"ttg\.async_copy_global_to_local .*tensor<\d+x!tt\.ptr<i32>", kernel.asm["ttgir"]))
    known["table_copies"] = copies * math.ceil(keywords.get("TILE", 0) / (32 * warps))
    if launch.name.split()[0] in ("attend", "combine"):
        fused = compile_launch(launch, sm, enable_fp_fusion=True)
        known["fused"] = _floats(_opcodes(_disassemble(fused.asm["cubin"])[1]))
    if configuration.hot:
        known["stable"] = _compiles_alike(launch, sm, kernel.asm["cubin"], sass)
    return Report(**known)


def _compiles_alike(launch: Launch, sm: int, cubin: bytes, sass: str) -> bool:
    from triton import knobs

    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        launch.function.device_caches.clear()
        again = compile_launch(launch, sm).asm["cubin"]
    # A cubin names its source file, and the first may come from the cache of another checkout.
    return bool(again == cubin) or _disassemble(again)[1] == sass
