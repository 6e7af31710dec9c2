"""What a core has decided for itself, where a correct core may decide either way.

The judge takes these as given and asks whether the core keeps them. A choice that no field can state yet is added here,
with a default that is kvcore's. docs/your-core.md says which engine has decided what.

This room may not know: any core.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Policy"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "reuse": ("last_block", "last_token"),
    "order": ("free_first", "released", "unpublished_first"),
    "duplicates": ("active", "first", "last"),
    "publish": ("completion", "dispatch"),
    "admission": ("request", "step"),
    "lifetime": ("steps", "stream"),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """One core's rules. Raises ValueError for a choice that there is not.

    num_blocks, block_size: the pool. reserved: blocks that are never handed out (a null block).
    caching: whether anything is ever reused.
    reuse: "last_block" (never hit a prompt's last block) or "last_token" (only the last token is computed again).
    publish: when a full block can be hit: at the "completion" of the step that computes it, or at its "dispatch"
    already, since later steps run after it.
    admission: "request" takes blocks for all tokens at allocate and append. With "step" a request waits; a step finds
    its hits when it is first dispatched, takes blocks for the tokens of the step only, request by request, and
    stops at the first that does not fit.
    chunks: whether a step may compute a part of what a request has left.
    lifetime: what a request that is freed in flight holds stays held until its "steps" complete, or is let go at once,
    since whoever gets it writes to it later in the same "stream".
    merges: completing a step may replace blocks in the tables of its requests by others with the same content.
    complete: everything resident is hit, and what extends a content leaves the cache before it does. A core that drops
    content earlier than it must says False; COMPLETENESS and EVICTION are not judged then.
    exact: the order of blocks is stated by the next two, so that every choice can be predicted.
    order: of new blocks. "free_first": unpublished ones first, as released, then published ones, as released.
    "released": all in the order of release. "unpublished_first": the same, but unpublished ones go to the front.
    duplicates: which of several blocks with the same content is hit: one that is "active" if there is any, else the
    first published; always the "first" published; or only the "last" published, the others being forgotten. With the
    last, a content may leave the cache before what extends it, so EVICTION is not judged.
    """

    num_blocks: int
    block_size: int
    reserved: frozenset[int] = frozenset()
    caching: bool = True
    reuse: str = "last_block"
    exact: bool = True
    publish: str = "completion"
    admission: str = "request"
    chunks: bool = True
    lifetime: str = "steps"
    merges: bool = False
    complete: bool = True
    order: str = "free_first"
    duplicates: str = "active"

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if (given := getattr(self, name)) not in allowed:
                raise ValueError(f"Policy.{name} is {given!r}; it can be {', '.join(map(repr, allowed))}")
        if self.exact and (self.merges or not self.complete):
            raise ValueError("Policy.exact predicts every choice; with merges, or not complete, say exact=False")
