"""The launches that kvcore makes, recorded on small CPU tensors, and compiled by Triton's own JIT for a GPU that is not
there."""

from __future__ import annotations

import contextlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import torch

from kvcore import batch
from kvcore.attention import PagedAttention
from kvcore.kernels import calls
from kvcore.kernels.spec import AttentionSpec, Tiling, Tree, tilings
from kvcore.storage import KVStorage, StorageConfig

from .configurations import Configuration

__all__ = ["Launch", "compile_launch", "recorded"]


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
        stack.enter_context(mock.patch.object(calls, "capability_of", return_value=sm))
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
