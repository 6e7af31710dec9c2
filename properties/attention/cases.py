"""Attention cases as data: a case is a few small values, from which everything is built again.

So a failing case is one line of JSON that replays without Hypothesis (`python -m fuzz attention --case ...`).

`draw` makes a case from choices. Hypothesis and the seeded stream both make the choices, so that there is one
generator. The first choice is always the simplest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

__all__ = ["Case", "Choose", "MalformedCase", "control_case", "draw", "fit"]

T = TypeVar("T")

Choose = Callable[[int], int]
"""choose(n): an integer from 0 to n - 1."""


class MalformedCase(ValueError):
    """JSON that is not a case. Says what was found and what was expected."""


@dataclass(frozen=True, slots=True)
class Case:
    """sequences: (context length, query rows) each. shared: leading blocks that all long enough sequences share.

    values: what K, V and Q are like. layout: of the cache in memory. filler: table entries beyond a context. spare:
    blocks that nobody owns. axes: what is varied. tile, leaf, rows: see `How`. fused: queries are a slice of wider
    rows.
    """

    sequences: tuple[tuple[int, int], ...] = ((1, 1),)
    dtype: str = "float32"
    kv_heads: int = 1
    group: int = 1
    head_dim: int = 16
    block_size: int = 1
    shared: int = 0
    window: int | None = None
    softcap: float | None = None
    alibi: bool = False
    values: str = "normal"
    layout: str = "heads first"
    filler: str = "minus one"
    spare: int = 1
    fused: bool = False
    native_fp8: bool = True
    tile: int = 16
    leaf: int = 32
    rows: tuple[int, ...] = (16, 16)
    axes: tuple[str, ...] = ()
    seed: int = 0

    @property
    def query_rows(self) -> int:
        return sum(rows for _, rows in self.sequences)

    @property
    def row_heads(self) -> int:
        return self.query_rows * self.kv_heads * self.group

    def to_json(self) -> str:
        """One line; fields at their default are left out."""
        default = Case()
        return json.dumps({name: value for name, value in asdict(self).items() if value != getattr(default, name)})

    @classmethod
    def from_json(cls, text: str) -> Case:
        """What `to_json` wrote. Raises MalformedCase."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise MalformedCase(f"not JSON: {error}") from None
        if not isinstance(data, dict):
            raise MalformedCase(f"a case is an object, got {text:.80}")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise MalformedCase(f"a case has no fields {unknown}; it has {', '.join(sorted(known))}")
        try:
            for name in ("rows", "axes"):
                if name in data:
                    data[name] = tuple(data[name])
            if "sequences" in data:
                data["sequences"] = tuple((int(context), int(rows)) for context, rows in data["sequences"])
        except (TypeError, ValueError, OverflowError):
            raise MalformedCase(f"sequences are [context, rows] pairs; rows and axes are lists: {text:.200}") from None
        case = cls(**data)
        for context, rows in case.sequences:
            if not 0 <= rows <= context:
                raise MalformedCase(f"a sequence of {context} tokens cannot have {rows} query rows")
        _allowed(case)
        return case


VALUES = (
    "normal",
    "uniform weights",
    "wide scores",
    "one key wins",
    "large scores",
    "tiny",
    "zero keys",
    "large values",
    "signs",
)
LAYOUTS = ("heads first", "slots first", "interleaved", "padded rows", "unlike")
FILLERS = ("minus one", "zero", "largest", "stale")


DTYPE_NAMES = ("float32", "float16", "bfloat16", "float8_e4m3")

_INTEGERS = {
    "kv_heads": (1, 64),
    "group": (1, 64),
    "head_dim": (1, 1024),
    "block_size": (1, 4096),
    "shared": (0, 4096),
    "spare": (0, 4096),
    "tile": (1, 4096),
    "leaf": (1, 4096),
    "seed": (0, 2**63 - 1),
}
"""Far above what any core has; a case is run in an interpreter."""

_ELEMENTS = 1 << 24
"""Elements of the largest tensor that a case may ask for. As float64, for the oracle, 128 MB."""


def _allowed(case: Case) -> None:
    """Raises MalformedCase for a value that is of another type or out of range, before anything is built of it."""

    def wrong(name: str, expected: str) -> MalformedCase:
        return MalformedCase(f"{name} is {getattr(case, name)!r:.80}; allowed is {expected}")

    def whole(value: Any, low: int, high: int) -> bool:
        return type(value) is int and low <= value <= high

    for name, (low, high) in _INTEGERS.items():
        if not whole(getattr(case, name), low, high):
            raise wrong(name, f"an integer from {low} to {high}")
    for name, words in (("dtype", DTYPE_NAMES), ("values", VALUES), ("layout", LAYOUTS), ("filler", FILLERS)):
        if getattr(case, name) not in words:
            raise wrong(name, f"one of {', '.join(words)}")
    for name in ("alibi", "fused", "native_fp8"):
        if type(getattr(case, name)) is not bool:
            raise wrong(name, "true or false")
    if case.window is not None and not whole(case.window, 1, 2**31 - 1):
        raise wrong("window", "an integer from 1 on, or null")
    if case.softcap is not None and not (type(case.softcap) in (int, float) and 0 < case.softcap < float("inf")):
        raise wrong("softcap", "a number above 0, or null")
    if len(case.rows) != 2 or not all(whole(count, 1, 4096) for count in case.rows):
        raise wrong("rows", "two integers from 1 to 4096")
    if not all(type(axis) is str for axis in case.axes):
        raise wrong("axes", "a list of texts")
    held = sum(-(-context // case.block_size) for context, _ in case.sequences) + case.shared + case.spare
    slots = max(held * case.block_size, case.query_rows * case.group)
    elements = slots * case.kv_heads * case.head_dim
    if elements > _ELEMENTS:
        raise MalformedCase(f"a tensor of {elements:,} elements; allowed are {_ELEMENTS:,}")


def control_case(dtype: str) -> Case:
    """The case in which it is tried whether poison shows (see `checks.poison_is_seen`)."""
    return Case(sequences=((19, 1),), dtype=dtype, group=2, block_size=4, seed=1)


def draw(choose: Choose, axes: Sequence[str], budget: int = 48) -> Case:
    """A case. budget: about how many tiles its base run computes (6 to 10 ms each in Triton's interpreter).

    Lengths are drawn around the edges of tiles, leaves and blocks, where the faults are. O(1).
    """

    def pick(options: Sequence[T]) -> T:
        return options[choose(len(options))]

    def sometimes(times: int, of: int) -> bool:
        return choose(of) >= of - times

    dtype = pick(("float32", "bfloat16", "float16", "float8_e4m3", "float32"))
    head_dim = pick((16, 32, 64, 24, 40, 80, 72, 96, 128, 20) if not sometimes(1, 12) else (192, 256))
    group = pick((1, 2, 3, 4, 5, 6, 7, 8, 16, 12))
    kv_heads = pick((1, 2, 3))
    block_size = pick((1, 2, 3, 4, 5, 7, 8, 16, 17, 64))
    tile, leaf = pick(((16, 32), (16, 16), (16, 48), (32, 64), (64, 128)))
    small = max(16, 1 << (group - 1).bit_length())
    rows = (small, pick((small, 2 * small, 4 * small)))

    left = max(budget // kv_heads, 4)
    sequences: list[tuple[int, int]] = []
    for _ in range(pick((1, 2, 3, 4, 5))):
        edge = pick((1, tile, leaf, block_size, 2 * leaf, 2 * tile, leaf + tile, 3 * block_size))
        context = max(edge + pick((0, -1, 1, 2, -2, 5)), 0)
        context = min(context, max(left // 2, 2) * tile)
        length = min(
            pick(
                (
                    1,
                    context,
                    0 if context < 3 else 2,
                    max(context // 2, 1),
                    context - 1,
                    rows[1] // group + 1,
                    tile + 1,
                    0,
                )
            ),
            context,
        )
        length = max(length, 0)
        # Tiles of this sequence, if its rows are cut by the smallest programs.
        cost = -(-context // tile) * -(-length // max(rows[1] // group, 1))
        if cost > left:
            length = min(length, max(left // max(-(-context // tile), 1), 1) * (rows[1] // group))
            cost = left
        sequences.append((context, length))
        left -= cost
        if left < 2:
            break
    longest = max(context for context, _ in sequences)
    # Windows about as long as tiles and leaves, and windows that begin at the edge of a leaf.
    windows = (1, 2, 3, tile - 1, tile, tile + 1, leaf + 1, leaf + tile // 2, 1000, longest - leaf, longest - leaf + 1)
    return Case(
        sequences=tuple(sequences),
        dtype=dtype,
        kv_heads=kv_heads,
        group=group,
        head_dim=head_dim,
        block_size=block_size,
        shared=pick((0, 1, 2, 5)),
        window=max(pick(windows), 1) if sometimes(3, 5) else None,
        softcap=pick((30.0, 2.0, 50.0)) if sometimes(2, 5) else None,
        alibi=sometimes(1, 5),
        values=pick((VALUES[0], VALUES[0], "wide scores", "large scores", *VALUES)),
        layout=pick(LAYOUTS),
        filler=pick(FILLERS),
        spare=pick((1, 0, 2, 5)),
        fused=sometimes(1, 3),
        native_fp8=not sometimes(1, 2),
        tile=tile,
        leaf=leaf,
        rows=rows,
        axes=_some(choose, axes, 3),
        seed=choose(1 << 16),
    )


def fit(case: Case, limits: Mapping[str, tuple[Any, ...]]) -> tuple[Case, tuple[str, ...]]:
    """The case within `limits` (see `Kernels.limits`), and what was changed, in words. A value that is not allowed
    becomes one of those that are, chosen by the case's seed. "query rows": those of a sequence. O(sequences)."""
    changes: dict[str, Any] = {}
    words = []
    for name, allowed in limits.items():
        if name == "query rows":
            most = max(allowed)
            if any(rows > most for _, rows in case.sequences):
                words.append(f"more than {most} query rows")
                changes["sequences"] = tuple((context, min(rows, most)) for context, rows in case.sequences)
        elif (value := getattr(case, name)) not in allowed:
            # A feature has words of its own. A size, or one of many kinds, is named with its value.
            words.append(name if isinstance(value, bool) or name in ("window", "softcap") else f"{name} {value}")
            changes[name] = allowed[case.seed % len(allowed)]
    return replace(case, **changes), tuple(words)


def _some(choose: Choose, options: Sequence[str], count: int) -> tuple[str, ...]:
    """A few of them, each at most once, in the given order."""
    left = list(options)
    chosen = [left.pop(choose(len(left))) for _ in range(min(count, len(left)))]
    return tuple(option for option in options if option in chosen)
