"""nano-vllm as a target (github.com/GeeeekExplorer/nano-vllm): its BlockManager and Sequence, unchanged.

Two interfaces are known. The current one has `hash_blocks`: `can_allocate` returns the cached blocks (or -1), a
request's blocks are all taken when it is admitted, and published when a step has computed them. The older one, which
`nano-vllm-fork` on PyPI still has, allocates and publishes at once when a request is first scheduled, so its requests
wait for a step here. Both engines are synchronous.

Only `nanovllm.engine.sequence` and `block_manager` are imported, from the package's folder: the package itself imports
the whole engine, with a GPU's libraries. The bare parents are in `sys.modules` for that long only.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from reference import Policy

from ..operations import Configuration, Namespace, Tokens
from ..target import Adapter, Capability, Inspection, Refused, StepView

__all__ = ["CurrentTarget", "OlderTarget", "forgetful", "make"]


class _NanoTarget(Adapter):
    """What both interfaces share. core: whatever has nano-vllm's `BlockManager` and `Sequence`."""

    name = "nano-vllm"
    capabilities = frozenset({Capability.INSPECT, Capability.FOOTPRINT})

    def __init__(self, num_blocks: int, block_size: int, core: Any) -> None:
        self._size = block_size
        self._sequence = core.Sequence
        self.manager = core.BlockManager(num_blocks, block_size)
        self._live: dict[str, Any] = {}

    def _new(self, tokens: Tokens) -> Any:
        sequence = self._sequence(list(tokens))
        sequence.block_size = self._size  # the class has the engine's
        return sequence

    def _grow(self, sequence: Any, tokens: Sequence[int]) -> bool:
        """Append `tokens` one by one, as the engine does; False, and nothing done, if there are not enough blocks for
        all."""
        length = len(sequence)
        needed = sum((length + more) % self._size == 1 for more in range(1, len(tokens) + 1))
        if needed > len(self.manager.free_block_ids):
            return False
        for token in tokens:
            sequence.append_token(token)
            self.manager.may_append(sequence)
        return True

    def free(self, request: str) -> None:
        sequence = self._live.pop(request)
        if sequence.block_table:
            self.manager.deallocate(sequence)

    def table(self, request: str) -> list[int]:
        return list(self._live[request].block_table)

    def _indexed(self, block: Any) -> bool:
        return bool(block.hash != -1 and self.manager.hash_to_block_id.get(block.hash) == block.block_id)

    def counts(self) -> tuple[int, int, int]:
        manager = self.manager
        cached = sum(self._indexed(manager.blocks[block]) for block in manager.free_block_ids)
        return len(manager.free_block_ids) - cached, cached, len(manager.used_block_ids)

    def states(self, blocks: Sequence[int]) -> list[tuple[int, bool]]:
        return [(block.ref_count, self._indexed(block)) for block in map(self.manager.blocks.__getitem__, blocks)]

    def inspect(self) -> Inspection:
        blocks = self.manager.blocks
        return Inspection(
            references=[block.ref_count for block in blocks],
            published=[self._indexed(block) for block in blocks],
            tables={request: list(sequence.block_table) for request, sequence in self._live.items()},
            free=list(self.manager.free_block_ids),
            cached=[],
        )


class CurrentTarget(_NanoTarget):
    """The interface with `hash_blocks`."""

    def __init__(self, configuration: Configuration, core: Any) -> None:
        # At block size 1 no length is 1 beyond a boundary, and nothing would ever be appended: not supported.
        super().__init__(configuration.num_blocks, max(2, configuration.block_size), core)
        self.policy = Policy(configuration.num_blocks, self._size, order="released", duplicates="last")

    def allocate(self, request: str, tokens: Tokens, namespace: Namespace, handle: Any) -> int:
        sequence = self._new(tokens)
        cached = self.manager.can_allocate(sequence)
        if cached < 0:
            raise Refused("OutOfBlocks")
        self.manager.allocate(sequence, cached)
        self._live[request] = sequence
        return int(sequence.num_cached_tokens)

    def append(self, request: str, tokens: Tokens) -> None:
        if not self._grow(self._live[request], tokens):
            raise Refused("OutOfBlocks")

    def dispatch(self, work: Sequence[tuple[str, int]]) -> StepView:
        sequences = [self._live[request] for request, _ in work]
        for sequence, (_, count) in zip(sequences, work, strict=True):
            sequence.num_scheduled_tokens = count
        return StepView(sequences)

    def complete(self, handle: Any) -> None:
        for sequence in handle:
            self.manager.hash_blocks(sequence)
            sequence.num_cached_tokens += sequence.num_scheduled_tokens
            sequence.num_scheduled_tokens = 0


class OlderTarget(_NanoTarget):
    """The interface whose `allocate` also publishes. What is appended waits here for the next step, since
    `may_append` publishes, too."""

    def __init__(self, configuration: Configuration, core: Any) -> None:
        super().__init__(configuration.num_blocks, max(2, configuration.block_size), core)
        self.policy = Policy(
            configuration.num_blocks,
            self._size,
            order="released",
            duplicates="last",
            publish="dispatch",
            admission="step",
            chunks=False,
        )
        self._appended: dict[str, list[int]] = {}

    def allocate(self, request: str, tokens: Tokens, namespace: Namespace, handle: Any) -> int:
        self._live[request] = self._new(tokens)
        self._appended[request] = []
        return 0

    def append(self, request: str, tokens: Tokens) -> None:
        self._appended[request] += tokens

    def dispatch(self, work: Sequence[tuple[str, int]]) -> StepView:
        manager, starts = self.manager, []
        for request, _ in work:
            sequence, appended = self._live[request], self._appended[request]
            start = len(sequence)
            if not sequence.block_table:
                for token in appended:  # while it waited: part of the prompt
                    sequence.append_token(token)
                appended.clear()
                if not manager.can_allocate(sequence):
                    break
                manager.allocate(sequence)
                start = sequence.num_cached_tokens
            elif not self._grow(sequence, appended):
                break
            appended.clear()
            starts.append(start)
        if not starts:
            raise Refused("OutOfBlocks")
        return StepView(None, starts=starts)

    def complete(self, handle: Any) -> None:
        pass

    def free(self, request: str) -> None:
        super().free(request)
        del self._appended[request]


def make(configuration: Configuration) -> CurrentTarget | OlderTarget:
    """A target on the installed package. Raises ImportError, which says what to install."""
    core = _core()
    return (CurrentTarget if hasattr(core.BlockManager, "hash_blocks") else OlderTarget)(configuration, core)


def forgetful(configuration: Configuration) -> CurrentTarget | OlderTarget:
    """The same, judged by what `nano-vllm-fork` has decided: a block that nobody holds is forgotten at once.

    So COMPLETENESS, OWNERSHIP and the order of blocks are not judged, and other violations can be seen.
    """
    target = make(configuration)
    target.policy = replace(target.policy, complete=False, exact=False)
    target.capabilities = target.capabilities - {Capability.INSPECT}
    return target


@cache
def _core() -> ModuleType:
    """The module that has BlockManager and Sequence."""
    found = importlib.util.find_spec("nanovllm")
    if found is None or found.origin is None:
        raise ImportError(
            "nano-vllm is not installed: pip install --no-deps nano-vllm-fork (or nano-vllm from its repository), and "
            "pip install numpy xxhash"
        )
    folder = Path(found.origin).parent
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "nanovllm"}
    for name in before:
        del sys.modules[name]
    try:
        for name, path in (("nanovllm", folder), ("nanovllm.engine", folder / "engine")):
            sys.modules[name] = parent = ModuleType(name)
            parent.__path__ = [str(path)]
        return importlib.import_module("nanovllm.engine.block_manager")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "nanovllm"]:
            del sys.modules[name]
        sys.modules.update(before)
