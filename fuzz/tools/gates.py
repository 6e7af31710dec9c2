"""Static gates: what the compiler makes of every launch that kvcore does, judged without a GPU.

    python -m fuzz.tools.gates --check      # every configuration, against the committed table

The real calls are made, on small CPU tensors, with each kernel replaced by a recorder; Triton's own JIT then
specialises and compiles what was recorded, for a GPU that is not there. So what is judged is what is launched:
signature, alignment hints, constants and options are nobody's second copy.

A *report* holds what was read of one compiled kernel (registers, spills, copies, matrix instructions, ...); a *gate* is
a function of one report that says what is wrong with it, or nothing. The reports are committed as
docs/generated/gates.json, so that a change which costs more than 5 % is seen in review.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import math
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unittest import mock

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kvcore import batch
from kvcore.attention import PagedAttention
from kvcore.kernels import calls
from kvcore.kernels.spec import AttentionSpec, Tiling, Tree, tilings
from kvcore.storage import DTYPES, KVStorage, StorageConfig

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
    "from_json",
    "markdown",
    "read_sass",
    "read_ttir",
    "recorded",
    "to_json",
    "versions",
]

ARCHITECTURES = (80, 90, 100)
TOLERANCE = 0.05
"""Of registers, shared memory and instructions against the committed table."""

SHARED_LIMIT = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}
"""Bytes of shared memory that one program can have."""

_SHARED_SM = {80: 164 * 1024, 90: 228 * 1024, 100: 228 * 1024}
_DOCS = Path(__file__).resolve().parents[2] / "docs" / "generated"


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


def _cover() -> Iterator[Configuration]:
    """Not the full product: each dtype with the head dims that it is used with, and the other axes around them."""
    everything = ("store", "attend", "combine", "copy", "audit")
    yield Configuration(kernels=everything, hot=True)
    yield Configuration(cached=_FP8, kernels=("store", "attend", "combine", "copy"), hot=True)
    for dim in (16, 64, 72, 80, 96, 192, 256):
        yield Configuration(head_dim=dim, kernels=("store", "attend", "combine"))
        yield Configuration(cached=_FP8, head_dim=dim, kernels=("store", "attend"))
    for dim in (32, 64, 72, 80, 96, 128, 256):
        yield Configuration("float32", head_dim=dim, kernels=("store", "attend", "combine"))
    for dim in (64, 128, 256):
        yield Configuration("float16", head_dim=dim, kernels=("store", "attend"))
    for dtype in ("float16", "float32"):
        yield Configuration(dtype, _FP8, kernels=("store", "attend"))
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
    from kvcore.kernels import attention, cache

    launches: list[Launch] = []
    with contextlib.ExitStack() as stack:
        for module in (attention, cache):
            for name in module.__all__:
                stack.enter_context(mock.patch.object(module, name, _Recorder(getattr(module, name), launches)))
        stack.enter_context(mock.patch.object(calls, "_launches", return_value=True))
        stack.enter_context(mock.patch.object(calls, "_has_fp8", return_value=sm >= 89))
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

    driver.set_active(_Target(sm))
    return launch.function.run(*launch.arguments, grid=launch.grid, warmup=True, **{**launch.keywords, **options})


# ---- reading what was compiled ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What was read of one compiled launch.

    tiling: rows, tile, warps, stages. registers: of a thread. stack, shared: bytes. spills: loads and stores of local
    memory (LDL, STL). copies, loads, stores: global to shared memory, from global and to global, bits of one thread ->
    instructions; table_copies: how many copies the block tables explain. share: bits of K/V that one access could move,
    128 or all that a thread has of a tile. matrix: opcode -> instructions. floats: FFMA, FADD, FMUL and their kin, as
    launched; fused: with fusion on. narrow: pointers to K/V whose address comes through a 32-bit multiplication.
    unmasked: pointers of which a tensor is accessed without a mask or, of tables and K/V, with one that does not know
    the context. stable: two compiles gave the same code. error: of the compiler; nothing else is known then.
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
    share: int = 128
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
        blank = Report("", "", 0)
        return {
            entry.name: value
            for entry in fields(self)
            if (value := getattr(self, entry.name)) != getattr(blank, entry.name)
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
_FLOATS = ("FFMA", "FFMA2", "FADD", "FADD2", "FMUL", "FMUL2", "DFMA", "DADD", "DMUL")


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
        # Of global memory. On sm_100 the compiler takes and returns tensor memory with ATOMS, in shared memory.
        "atomics": total("ATOM", "ATOMG", "RED", "REDG"),
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
        "share": _share(launch, configuration, 32 * warps),
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
    # Whether an fma is spelled out does not depend on how many numbers a row has.
    if launch.name.split()[0] in ("attend", "combine") and (configuration.head_dim == 128 or configuration.features):
        fused = compile_launch(launch, sm, enable_fp_fusion=True)
        known["fused"] = _floats(_opcodes(_disassemble(fused.asm["cubin"])[1]))
    if configuration.hot:
        known["stable"] = _compiles_alike(launch, sm, kernel.asm["cubin"], sass)
    return Report(**known)


def _share(launch: Launch, configuration: Configuration, threads: int) -> int:
    keywords = launch.keywords
    size: int = DTYPES[configuration.cached or configuration.dtype].itemsize
    if launch.name == "copy":
        size = keywords["CHUNK"] * launch.arguments[0].element_size()
    else:
        size *= keywords.get("TILE", keywords.get("TOKENS", threads)) * keywords.get("PADDED", 1)
    return min(128, 8 * size // threads)


def _compiles_alike(launch: Launch, sm: int, cubin: bytes, sass: str) -> bool:
    from triton import knobs

    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        launch.function.device_caches.clear()
        again = compile_launch(launch, sm).asm["cubin"]
    # A cubin names its source file, and the first may come from the cache of another checkout.
    return bool(again == cubin) or _disassemble(again)[1] == sass


# ---- gates -----------------------------------------------------------------------------------------------------------


def _configuration(report: Report) -> Configuration:
    return next(entry for entry in CONFIGURATIONS if entry.name == report.configuration)


def _compiles(report: Report) -> str | None:
    return report.error


def _spills(report: Report) -> str | None:
    if report.hot and report.sm >= 90 and (report.spills or report.stack):
        return f"{report.spills} loads and stores of local memory, {report.stack} bytes of stack; a hot launch has none"
    return None


def _shared_memory(report: Report) -> str | None:
    limit = SHARED_LIMIT[report.sm]
    return f"{report.shared} bytes, sm_{report.sm} has {limit}" if report.shared > limit else None


def _wide_copies(report: Report) -> str | None:
    configuration = _configuration(report)
    # 72 * 2 bytes: Triton knows no alignment but 16 elements. One operand of an FP8 cache comes in 64 bits.
    if not report.kernel.startswith("attend") or configuration.cached or configuration.head_dim % 16:
        return None
    wide = report.share
    narrow = sum(count for width, count in report.copies.items() if width < wide)
    if not (report.copies or report.loads).get(wide):
        return f"no {wide}-bit access to K/V at all: copies {report.copies}, loads {report.loads}"
    if narrow > report.table_copies or any(32 < width < wide for width in report.copies):
        return f"K/V copies below {wide} bits: {_pieces(report.copies)}, of which {report.table_copies} are of tables"
    return None


def _wide_stores(report: Report) -> str | None:
    if report.kernel not in ("store", "copy") or _configuration(report).head_dim % 16:
        return None
    if set(report.stores) == {report.share}:
        return None
    return f"stores of {report.stores} bits, all could have {report.share}"


def _matrix_units(report: Report) -> str | None:
    if not report.kernel.startswith("attend"):
        return None
    dtype = _configuration(report).dtype
    if dtype == "float32":
        wanted, kind = "DMMA", ""
    else:
        tall = int(report.tiling.split("x")[0]) >= 64
        wanted = {90: "HGMMA", 100: "UTCHMMA"}.get(report.sm, "HMMA") if tall else "HMMA"
        kind = ".BF16" if dtype == "bfloat16" else ".F32"
    found = {opcode.split(".")[0] for opcode in report.matrix}
    if found != {wanted}:
        return f"{wanted} alone was expected, found {', '.join(report.matrix) or 'none'}"
    # tcgen05 keeps the type in a descriptor.
    if wanted != "UTCHMMA" and not all(opcode.endswith(kind) for opcode in report.matrix):
        return f"{wanted} of type {kind} was expected, found {', '.join(report.matrix)}"
    return None


def _unfused(report: Report) -> str | None:
    # libdevice's float64 exp2 begins with an addition, which can take in the multiplication before it.
    doubled = report.configuration.startswith("fp32") and "softcap" in report.configuration
    if report.fused is None or doubled:
        return None
    # Fusion turns additions into fmas. The number of multiplications alone may differ: those of a division's scaling.
    launched, fused = (
        {name: count for name, count in counts.items() if "MUL" not in name} for counts in (report.floats, report.fused)
    )
    if launched == fused:
        return None
    return f"{_counts(report.floats)} as launched, {_counts(report.fused)} with fusion on: an fma is not spelled out"


def _no_atomics(report: Report) -> str | None:
    return f"{report.atomics} atomic instructions" if report.atomics else None


def _wide_addresses(report: Report) -> str | None:
    if report.narrow:
        return f"the address of {', '.join(report.narrow)} contains a 32-bit multiplication"
    return None


def _masked(report: Report) -> str | None:
    if report.unmasked:
        return f"{', '.join(report.unmasked)}: not masked, or by a mask that does not know the context"
    return None


def _stable(report: Report) -> str | None:
    return "two compiles gave different code" if report.stable is False else None


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


GATES: dict[str, Callable[[Report], str | None]] = {
    "compiles": _compiles,
    "spills": _spills,
    "shared memory": _shared_memory,
    "128-bit copies": _wide_copies,
    "128-bit stores": _wide_stores,
    "matrix units": _matrix_units,
    "fusion": _unfused,
    "atomics": _no_atomics,
    "64-bit addresses": _wide_addresses,
    "masks": _masked,
    "stable": _stable,
}
"""Name -> what is wrong with a report, or None."""


def failures(reports: Iterable[Report]) -> list[str]:
    """One line for each gate that a report does not pass. A report with an error has just that one."""
    lines = []
    for report in reports:
        for name, gate in GATES.items():
            if (fault := gate(report)) is not None:
                lines.append(f"{_label(report.key)}: {name}: {fault}")
            if report.error is not None:
                break
    return lines


def drifts(now: Sequence[Report], before: Sequence[Report]) -> list[str]:
    """One line for each difference that matters: over 5 % of registers, shared memory or instructions, and any change
    of spills or matrix opcodes. Both ways: what became better is to be committed as well."""
    old = {report.key: report for report in before}
    lines = [f"{_label(key)}: no longer compiled" for key in old.keys() - {report.key for report in now}]
    for report in now:
        was = old.get(report.key)
        if was is None:
            lines.append(f"{_label(report.key)}: not in the table")
            continue
        for name in ("registers", "shared", "instructions"):
            value, reference = getattr(report, name), getattr(was, name)
            if abs(value - reference) > TOLERANCE * reference:
                lines.append(f"{_label(report.key)}: {name} {reference} -> {value}")
        for name in ("spills", "stack", "error"):
            value, reference = getattr(report, name), getattr(was, name)
            if value != reference:
                lines.append(f"{_label(report.key)}: {name} {reference} -> {value}")
        if report.matrix.keys() != was.matrix.keys():
            lines.append(f"{_label(report.key)}: matrix opcodes {', '.join(was.matrix)} -> {', '.join(report.matrix)}")
    return sorted(lines)


def _known(report: Report, triton: str) -> str | None:
    """Why a launch does not compile under an older Triton, if that is known and accepted."""
    configuration = _configuration(report)
    if triton.startswith("3.6.") and configuration.dtype == "float32" and configuration.cached and report.sm < 100:
        return "Triton 3.6 cannot multiply FP8 widened to float64: float32 queries over an FP8 cache need a newer one"
    return None


def _label(key: tuple[str, str, int]) -> str:
    return f"{key[0]}, {key[1]}, sm_{key[2]}"


# ---- all of them -----------------------------------------------------------------------------------------------------


def _start_worker() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def _work(configuration: Configuration, sm: int, compile_only: bool) -> list[Report]:
    return [examine(launch, configuration, sm, compile_only=compile_only) for launch in recorded(configuration, sm)]


def _run(
    configurations: Iterable[Configuration], architectures: Sequence[int], compile_only: bool, processes: int
) -> list[Report]:
    """Everything compiled and read, in the order of the configurations."""
    jobs = [
        (replace(configuration, kernels=(kernel,)), sm)
        for configuration in configurations
        for kernel in configuration.kernels
        for sm in architectures
    ]
    # Spawned: Triton and torch have threads, which a fork does not survive.
    context = multiprocessing.get_context("spawn")
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=complaints
    )
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_start_worker) as pool, bar:
        task = bar.add_task("compiling", total=len(jobs), visible=complaints.is_terminal)
        futures = [pool.submit(_work, configuration, sm, compile_only) for configuration, sm in jobs]
        try:
            for _ in as_completed(futures):
                bar.advance(task)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        return [report for future in futures for report in future.result()]


def versions() -> dict[str, str]:
    """Of Triton and of its assemblers: what a table is good for."""
    from triton import knobs

    found = {"triton": importlib.metadata.version("triton")}
    for name in ("ptxas", "ptxas_blackwell"):
        with contextlib.suppress(RuntimeError, AttributeError):
            found[name] = getattr(knobs.nvidia, name).version
    return found


def to_json(made_with: dict[str, str], reports: Sequence[Report]) -> str:
    """One report a line, so that a change is a line of a diff."""
    lines = ",\n".join(json.dumps(report.to_json()) for report in reports)
    return f'{{"versions": {json.dumps(made_with)}, "reports": [\n{lines}\n]}}\n'


def from_json(text: str) -> tuple[dict[str, str], list[Report]]:
    data = json.loads(text)
    return data["versions"], [Report.from_json(entry) for entry in data["reports"]]


# ---- tables ----------------------------------------------------------------------------------------------------------

_PREFACE = """# Static gates

What the compiler makes of every kernel launch of kvcore, without a GPU. `python -m fuzz.tools.gates` makes the
real calls with recorders in place of the kernels, lets Triton's JIT compile what was recorded for sm_80, sm_90 and
sm_100, and reads the machine code with the tools that ship with Triton. Nothing here is a timing.

This page and `gates.json` beside it were written by `python -m fuzz.tools.gates --write` with {versions}.
`--check` compares a fresh run with them: it fails if registers, shared memory or instructions moved by more than 5 %,
or if spills or matrix instructions changed at all. Another Triton or ptxas gives other numbers, so it compares under
these versions alone; `--compile-only` compiles under any Triton and reads nothing.

The gates, for every launch:

- it compiles, and its shared memory fits ({limits});
- no address of K/V contains a 32-bit multiplication;
- every access to a tensor is masked, to tables and K/V by the length of the context;
- no atomics;
- 16-bit and float32 K/V move 128 bits at a time, if the head dim is a multiple of 16 (less where a whole tile has less
  for each thread);
- `attend` uses one kind of matrix instruction, the expected one: HMMA below 64 rows and on sm_80, else HGMMA (sm_90)
  or UTCHMMA (sm_100); DMMA for float32 queries;
- `attend` and `combine` have as many float additions and fmas with fusion on as without: every fma is spelled out, none
  is left to the compiler (looked at with head dim 128 and with every feature, but for the softcap of float32 queries).

Hot launches also have no spills and no stack on sm_90 and sm_100, and two compiles give the same code.

Spills are instructions that load or store local memory (LDL, STL). Programs: how many fit on one multiprocessor at
once. Copies go from global to shared memory; 6x32 of them are block tables. "small" is the lane of decodes and short
chunks, "large" that of prompts; split and direct schedules run the same code. Tilings: rows x keys, warps, stages.
"""


def markdown(made_with: dict[str, str], reports: Sequence[Report]) -> str:
    limits = ", ".join(f"{limit // 1024} KB on sm_{sm}" for sm, limit in SHARED_LIMIT.items())
    named = ", ".join(f"{name.replace('_', '-')} {version}" for name, version in made_with.items())
    parts = [_PREFACE.format(versions=named, limits=limits)]
    for name in dict.fromkeys(report.configuration for report in reports if report.hot):
        rows = [report for report in reports if report.configuration == name]
        order = list(dict.fromkeys(report.kernel for report in rows))
        rows.sort(key=lambda report: (order.index(report.kernel), report.sm))
        parts.append(f"## Hot: {name}\n\n{_grid(_DETAILS, [_details(report) for report in rows])}")
    parts.append(
        "## All\n\nBy launch: tiling, registers, shared memory; spills in bold. D: head dim, G: query heads for each "
        "kv head, B: block size.\n"
    )
    architectures = sorted({report.sm for report in reports})
    for title in ("attend", "combine", "store, copy, audit"):
        cells: dict[tuple[str, str], dict[int, str]] = {}
        for report in reports:
            if report.kernel.split()[0] in title.split(", "):
                cells.setdefault((report.configuration, report.kernel), {})[report.sm] = _cell(report)
        rows_of_all = [[*key, *(by_sm.get(sm, "") for sm in architectures)] for key, by_sm in cells.items()]
        header = ("configuration", "launch", *(f"sm_{sm}" for sm in architectures))
        parts.append(f"### {title}\n\n{_grid(header, rows_of_all)}")
    return "\n".join(parts)


_DETAILS = (
    "launch",
    "sm",
    "tiling",
    "registers",
    "spills",
    "stack",
    "shared",
    "programs",
    "copies",
    "loads",
    "stores",
    "matrix",
    "floats, fusion off",
    "fusion on",
    "instructions",
)


def _details(report: Report) -> list[str]:
    if report.error is not None:
        return [report.kernel, str(report.sm), report.tiling, report.error, *[""] * (len(_DETAILS) - 4)]
    fused = "" if report.fused is None else "same" if report.fused == report.floats else _counts(report.fused)
    return [
        report.kernel,
        str(report.sm),
        report.tiling,
        str(report.registers),
        str(report.spills),
        str(report.stack),
        _bytes(report.shared),
        str(report.programs),
        *map(_pieces, (report.copies, report.loads, report.stores)),
        ", ".join(f"{count} {opcode}" for opcode, count in report.matrix.items()),
        ", ".join(f"{count} {name}" for name, count in report.floats.items()),
        fused,
        str(report.instructions),
    ]


def _cell(report: Report) -> str:
    if report.error is not None:
        return f"**{report.error}**"
    parts = [f"{report.tiling}:" if report.tiling else "", f"{report.registers}"]
    text = " ".join(filter(None, parts))
    if report.shared:
        text += f", {_bytes(report.shared)}"
    return text + (f", **{report.spills} spills**" if report.spills else "")


def _bytes(size: int) -> str:
    return f"{size / 1024:.0f} KB" if size >= 1024 else str(size)


def _pieces(pieces: dict[int, int]) -> str:
    return ", ".join(f"{count}x{width}" for width, count in pieces.items())


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _show(reports: Sequence[Report]) -> None:
    table = Table(header_style="bold")
    for name in ("configuration", "launch", "sm", "tiling"):
        table.add_column(name, no_wrap=True)
    for name in ("registers", "spills", "shared", "programs", "instructions"):
        table.add_column(name, justify="right")
    for report in reports:
        spills = f"[red]{report.spills}[/]" if report.spills else "0"
        numbers = (str(report.registers), spills, _bytes(report.shared), str(report.programs), str(report.instructions))
        table.add_row(report.configuration, report.kernel, str(report.sm), report.tiling, *numbers)
    console.print(table)


# ---- the command -----------------------------------------------------------------------------------------------------

CLEAN, FAILED, USAGE = 0, 1, 2

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
# A pipe has no width of its own, and 80 columns would break every row.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
complaints = Console(stderr=True, highlight=False)


def _refuse(message: str) -> typer.Exit:
    complaints.print(f"[red]error:[/] {escape(message)}")
    return typer.Exit(USAGE)


@app.command(
    help="Compile every kernel launch of kvcore for GPUs that need not be there, and judge the code.\n\n"
    "Examples:\n\n"
    "  python -m fuzz.tools.gates --hot   what matters most\n\n"
    "  python -m fuzz.tools.gates --check   all, against docs/generated/gates.json\n\n"
    "  python -m fuzz.tools.gates --write   after a change that is meant\n\n"
    "  python -m fuzz.tools.gates --compile-only   for another Triton\n\n"
    "Exit status: 0 all gates passed, 1 a gate failed or a number drifted, 2 usage, or nothing could be compiled."
)
def main(
    sm: Annotated[str, typer.Option(help="Compute capabilities, of 80, 90, 100.")] = "80,90,100",
    hot: Annotated[bool, typer.Option("--hot", help="Only the hot configurations.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare with docs/generated/gates.json.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Rewrite gates.json and gates.md in docs/generated.")] = False,
    compile_only: Annotated[bool, typer.Option("--compile-only", help="Compile, and read no machine code.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the reports to this file.")] = None,
    docs: Annotated[
        Path, typer.Option(help="Where gates.json and gates.md are.", show_default="of this checkout")
    ] = _DOCS,
    processes: Annotated[int, typer.Option(min=1, help="Compile so many launches at once.")] = os.cpu_count() or 1,
) -> None:
    architectures = _architectures(sm)
    whole = not hot and architectures == list(ARCHITECTURES)
    if write and not whole:
        raise _refuse("--write writes the whole table: not with --hot or a part of --sm")
    if compile_only and (write or check):
        raise _refuse("--compile-only reads no numbers: not with --check or --write")
    if os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y"):
        raise _refuse("TRITON_INTERPRET is set: Triton then interprets and compiles nothing. Unset it for this command")
    made_with, before = _table(docs) if check else ({}, [])
    if not _reads_code() and not compile_only:
        if check or write:
            raise _refuse("nothing to compare or to write then")
        compile_only = True
    current = versions()
    if check and made_with != current:
        raise _refuse(f"the table was made with {made_with}, this is {current}")

    chosen = [entry for entry in CONFIGURATIONS if entry.hot or not hot]
    reports = _run(chosen, architectures, compile_only, processes)
    if json_file is not None:
        json_file.write_text(to_json(current, reports))
    if compile_only:
        what = f"{len(reports)} launches, compiled with Triton {current['triton']}"
        broken = _uncompiled(reports, current["triton"])
    else:
        what = f"{len(reports)} launches, {len(GATES)} gates"
        broken = failures(reports)
        _show(reports)
    if check:
        left_out = {entry.name for entry in CONFIGURATIONS} - {entry.name for entry in chosen}
        wanted = [entry for entry in before if entry.configuration not in left_out and entry.sm in architectures]
        broken += drifts(reports, wanted)
        what += f", compared with {docs / 'gates.json'}"
    if write:
        (docs / "gates.json").write_text(to_json(current, reports))
        (docs / "gates.md").write_text(markdown(current, reports))
        what += f", written to {docs}"
    for line in broken:
        complaints.print(f"[red]FAILED[/] {escape(line)}", soft_wrap=True)
    console.print(f"{what}: {f'{len(broken)} failures' if broken else 'all passed'}", soft_wrap=True)
    raise typer.Exit(FAILED if broken else CLEAN)


def _architectures(names: str) -> list[int]:
    with contextlib.suppress(ValueError):
        found = sorted({int(part) for part in names.split(",")})
        if set(found) <= set(ARCHITECTURES):
            return found
    raise _refuse(f"--sm takes numbers from {ARCHITECTURES}, got {names!r}")


def _table(docs: Path) -> tuple[dict[str, str], list[Report]]:
    try:
        return from_json((docs / "gates.json").read_text())
    except (OSError, ValueError, KeyError) as error:
        raise _refuse(f"cannot read {docs / 'gates.json'}: {error}") from None


def _reads_code() -> bool:
    """Whether Triton brings the tools to read what it compiled. Refuses to go on if it cannot even compile."""
    try:
        import triton
    except ImportError:
        raise _refuse("Triton is not installed; pip install 'kvcore[cuda]'") from None
    if missing := _missing_tools(("ptxas",)):
        raise _refuse(f"{missing[0]} is not in this Triton ({triton.__file__}): nothing can be compiled")
    missing = _missing_tools(("cuobjdump", "nvdisasm"))
    if missing:
        complaints.print(f"[yellow]not in this Triton: {', '.join(missing)}. Compiling, and reading no machine code[/]")
    return not missing


def _uncompiled(reports: Iterable[Report], triton: str) -> list[str]:
    broken = []
    for report in reports:
        if report.error is None:
            continue
        if reason := _known(report, triton):
            complaints.print(f"[yellow]known[/] {escape(_label(report.key))}: {reason}", soft_wrap=True)
        else:
            broken.append(f"{_label(report.key)}: {report.error}")
    return broken


if __name__ == "__main__":
    app()
