"""The target alone, as a trace drives it: for its own speed, with nothing beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from properties.operations import Allocate, Append, Complete, Dispatch, Free, Operation
from properties.session import Outcome
from properties.target import Capability, Target

__all__ = ["Bare"]

_DONE = Outcome("done")


class Bare:
    """Applies what a schedule does to `target`, and counts evictions where they can be told from outside."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._size = target.policy.block_size
        # With blocks of one slot, n - 1 hit tokens may be n hit blocks (see Judge._hit_blocks); then nobody can say.
        self._counted = (
            Capability.INSPECT in target.capabilities
            and target.policy.exact
            and (self._size > 1 or target.policy.reuse == "last_block")
        )
        self._evictions = 0
        self._hits: dict[str, int] = {}
        self._lengths: dict[str, int] = {}
        self._steps: dict[int, Any] = {}

    def hit_tokens(self, request: str) -> int:
        return self._hits.pop(request)

    def evictions(self) -> int | None:
        return self._evictions if self._counted else None

    def drain(self, remember: Callable[[Operation], Any]) -> None:
        """Nothing is checked, so there is nothing to end with."""

    def apply(self, operation: Allocate | Append | Dispatch | Complete | Free) -> Outcome:
        """O(what the target does). What the target raises besides refusals passes through."""
        target = self._target
        try:
            if isinstance(operation, Append):
                request, tokens = operation.request, operation.tokens
                length = self._lengths[request]
                free = self._free() if not length % self._size else 0
                target.append(request, tokens)
                self._lengths[request] = length + 1
                if not length % self._size:
                    self._took(1, free)
            elif isinstance(operation, Dispatch):
                self._steps[operation.step] = target.dispatch(operation.work).handle
            elif isinstance(operation, Complete):
                target.complete(self._steps.pop(operation.step))
            elif isinstance(operation, Allocate):
                request, tokens = operation.request, operation.tokens
                free = self._free()
                hits = target.allocate(request, tokens, (), None)
                self._hits[request] = hits
                self._lengths[request] = len(tokens)
                self._took(-(-len(tokens) // self._size) - -(-hits // self._size), free)
            elif isinstance(operation, Free):
                target.free(operation.request)
                del self._lengths[operation.request]
            else:
                assert_never(operation)
        except target.refusals as error:
            return Outcome("refused", target.kind(error))
        return _DONE

    def _free(self) -> int:
        return self._target.counts()[0] if self._counted else 0

    def _took(self, blocks: int, free: int) -> None:
        """`blocks` were taken where `free` were free: with the stated order of blocks, the others were evicted."""
        if self._counted and blocks > free:
            self._evictions += blocks - free
