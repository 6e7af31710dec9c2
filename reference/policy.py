"""What a core has decided for itself, where a correct core may decide either way.

The judge takes these as given and asks whether the core keeps them. A choice that no field can state yet is added here,
with a default that is kvcore's. docs/your-core.md says which engine has decided what.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Policy", "believed"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "reuse": ("last_block", "last_token"),
    "order": ("free_first", "released", "unpublished_first"),
    "duplicates": ("active", "first", "last"),
    "publish": ("completion", "dispatch", "either"),
    "admission": ("request", "step"),
    "lifetime": ("steps", "stream"),
    "truncates": ("tokens", "placeholders"),
    "leftover": ("released", "kept"),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """One core's rules. Raises ValueError for an unknown value.

    num_blocks, block_size: the pool. reserved: blocks that are never handed out (a null block).
    caching: whether anything is ever reused.
    reuse: "last_block" (never hit a prompt's last block) or "last_token" (only the last token is computed again).
    publish: when a full block can be hit: at the "completion" of the step that computes it, or at its "dispatch"
    already, since later steps run after it. What is named later than that is published when it is named or, with
    "dispatch", when its request is next dispatched. With "either": whatever comes first.
    admission: "request" takes blocks for all tokens at allocate and append. With "step" a request waits; a step finds
    its hits when it is first dispatched, takes blocks for the tokens of the step only, request by request, and
    stops at the first that does not fit. The hits are those of the tokens that are known by then: up to the first
    placeholder, and not the last of them.
    chunks: whether a step may compute a part of what a request has left.
    lookahead: with admission by the step, how many tokens more than it computes a step takes blocks for (a draft
    model's).
    truncates: what can be cut: any "tokens" that were appended, or only "placeholders", as an engine's rejected drafts
    are: the first token without a name and all behind it. In flight that is what no step computes yet, and as many
    more as completed steps have computed and nobody has named: these are rejected, and the steps in flight turn out to
    compute positions that lie so much lower.
    leftover: the blocks that a truncation leaves over are "released", or "kept" at the end of the table, for what the
    request computes next. What is kept must never have been shared, so that it needs admission by the step, and that
    only placeholders are cut. A lookahead needs that they are kept.
    lifetime: what a request that is freed in flight holds stays held until its "steps" complete, or is let go at once,
    since whoever gets it writes to it later in the same "stream".
    windows: one for each group of layers that has tables of its own, from the one pool: how many tokens a query attends
    to there, itself included; None for all before it. What no query attends to any more is let go: when a step is to
    compute a request further, whether it then fits or not, blocks that lie wholly before the window of its first token
    whose computation is not complete are released, last first, and the table has the one reserved block in their
    places. What has no name yet counts as not complete: it may be rejected, and the window goes back with it. A hit is
    as long in every group; it needs only the blocks in the windows of the first token after it. Parents then leave the
    cache before their children, so EVICTION is not judged. Groups do everything in their order, and a request's table
    is theirs, one after the other. Windows and more than one group need admission by the step.
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
    lookahead: int = 0
    truncates: str = "tokens"
    leftover: str = "released"
    lifetime: str = "steps"
    merges: bool = False
    complete: bool = True
    order: str = "free_first"
    duplicates: str = "active"
    windows: tuple[int | None, ...] = (None,)

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if (given := getattr(self, name)) not in allowed:
                raise ValueError(f"Policy.{name} is {given!r}; it can be {', '.join(map(repr, allowed))}")
        if self.exact and (self.merges or not self.complete):
            raise ValueError("Policy.exact predicts every choice; with merges, or not complete, say exact=False")
        if self.leftover == "kept" and (self.admission, self.truncates) != ("step", "placeholders"):
            raise ValueError(
                f"Policy.leftover is 'kept' with admission {self.admission!r} and truncates {self.truncates!r}; since "
                "others may hold what was published, it needs admission 'step' and truncates 'placeholders'"
            )
        if self.lookahead < 0 or (self.lookahead and self.leftover != "kept"):
            raise ValueError(
                f"Policy.lookahead is {self.lookahead} with leftover {self.leftover!r}; it is 0, or more with 'kept'"
            )
        if self.windows != (None,) and (
            (self.admission, self.reuse, self.merges) != ("step", "last_block", False)
            or not self.windows
            or any(window is not None and window < 2 for window in self.windows)
            or (self.windowed and len(self.reserved) != 1)
        ):
            raise ValueError(
                f"Policy.windows are {self.windows}; they need admission 'step', reuse 'last_block' and no merges, "
                "each is None or 2 and more, and with one that is not None there is one reserved block"
            )

    @property
    def groups(self) -> int:
        """How many groups of layers have tables of their own."""
        return len(self.windows)

    @property
    def windowed(self) -> bool:
        """Whether any group's queries attend to a window only."""
        return self.windows != (None,) and any(window is not None for window in self.windows)

    @property
    def null_block(self) -> int:
        """The reserved block that stands in tables for what no query attends to; -1 where nothing ever is released."""
        return next(iter(self.reserved)) if self.windowed else -1


def believed(policy: Policy) -> dict[str, Any]:
    """What a policy says that is not the default, as plain values, the pool's size left out: for people and files.
    O(fields)."""
    found: dict[str, Any] = {}
    for one in fields(Policy):
        value = getattr(policy, one.name)
        if one.name not in ("num_blocks", "block_size") and value != one.default:
            plain = sorted(value) if isinstance(value, frozenset) else value
            found[one.name] = list(plain) if isinstance(plain, tuple) else plain
    return found
