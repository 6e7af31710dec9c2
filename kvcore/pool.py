"""Physical blocks: who holds how many references, and which is taken next.

A block is *free* (no reference, nothing reusable in it), *cached* (no reference, published content that can still be
hit; evictable) or *active* (one reference for each block table and pending copy that holds it).

Order of taking: free blocks in the order in which they became free, then cached ones, least recently released first.
Tables are released tail first, so that a prefix outlives what extends it. A second rule has the same purpose. When the
last active owner of a content is rolled back and only cached duplicates of it are left, the first of them counts as
released now. Others may have built on the content through the active owner and been released since. Without the rule,
the duplicate is older than what they built, and would be evicted before it.

The cached blocks need O(1) at both ends, and O(1) removal from the middle for hits. They are a doubly linked list in
two Python lists of block numbers: to release or evict a block takes a few list stores. `OrderedDict` allocates a node
for each block and took a third longer. Taking the head of a plain dict again and again scans over the holes that
earlier removals left. (vLLM's free list is linked too, through its block objects.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from .prefix import PrefixIndex

__all__ = ["BlockPool", "Discard"]


Discard = Callable[[list[int]], None]
"""Called with blocks whose content nobody can reach any more: they became free, or are taken for other content."""


class BlockPool:
    """State of all physical blocks. Memory O(num_blocks); only the constructor and `forget` take O(num_blocks)."""

    __slots__ = (
        "_next",
        "_previous",
        "evictions",
        "free",
        "index",
        "num_blocks",
        "num_cached",
        "on_discard",
        "references",
    )

    def __init__(self, num_blocks: int, on_discard: Discard | None = None) -> None:
        self.num_blocks = num_blocks
        self.on_discard = on_discard
        self.references = [0] * num_blocks
        self.free = deque(range(num_blocks))
        self.index = PrefixIndex(num_blocks)
        self.evictions = 0
        self.num_cached = 0
        # The cached blocks, least recently released first; entry num_blocks is the head and the tail of the ring.
        self._next = [num_blocks] * (num_blocks + 1)
        self._previous = [num_blocks] * (num_blocks + 1)

    @property
    def available(self) -> int:
        """Blocks that can be taken now: free and cached. O(1)."""
        return len(self.free) + self.num_cached

    def cached(self) -> Iterator[int]:
        """The cached blocks in the order in which they would be evicted. O(cached)."""
        block = self._next[self.num_blocks]
        while block != self.num_blocks:
            yield block
            block = self._next[block]

    def take(self, count: int) -> list[int]:
        """Take `count` blocks, each with one reference; evicts cached ones when the free ones are used up. O(count).

        The caller has made sure that `count` is available.
        """
        references = self.references
        popleft = self.free.popleft
        taken = [popleft() for _ in range(min(count, len(self.free)))]
        missing = count - len(taken)
        if missing:
            end, following = self.num_blocks, self._next
            block = following[end]
            for _ in range(missing):
                taken.append(block)
                block = following[block]
            following[end] = block
            self._previous[block] = end
            self.num_cached -= missing
            self.evictions += missing
            self.index.remove(taken[-missing:])
            if self.on_discard is not None:
                self.on_discard(taken[-missing:])
        for block in taken:
            references[block] = 1
        return taken

    def pin(self, blocks: Iterable[int]) -> None:
        """One more reference on each; a cached block becomes active and keeps its content. O(blocks)."""
        references, following, previous = self.references, self._next, self._previous
        for block in blocks:
            if not references[block]:
                before, after = previous[block], following[block]
                following[before] = after
                previous[after] = before
                self.num_cached -= 1
            references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One reference less on each, in this order; those without any become cached or free. O(blocks)."""
        references, held, following, previous = self.references, self.index.held, self._next, self._previous
        end = self.num_blocks
        last = previous[end]
        cached = 0
        freed = len(self.free)
        for block in blocks:
            left = references[block] - 1
            references[block] = left
            if not left:
                if held[block] is None:
                    self.free.append(block)
                else:
                    following[last] = block
                    previous[block] = last
                    last = block
                    cached += 1
        following[last] = end
        previous[end] = last
        self.num_cached += cached
        if self.on_discard is not None and len(self.free) > freed:
            self.on_discard(list(self.free)[freed:])

    def release_alone(self, blocks: Iterable[int]) -> None:
        """Release blocks whose holder may no longer hold their prefix: a copy's source, or blocks that were cut off.

        If one becomes cached, the cached contents before it count as released now, so that none is older than what
        extends it. O(blocks), and O(prefix) where nobody holds the prefix any more.
        """
        for block in blocks:
            self.release((block,))
            content = self.index.held[block]
            if content is None or self.references[block]:
                continue
            parent = content[0]
            # Up to an active owner: its table holds all before it, too.
            while isinstance(parent, tuple) and self._refresh(self.index.owners(parent)):
                parent = parent[0]

    def roll_back(self, block: int) -> None:
        """An active block leaves the index, if it is in it, because its tokens were rejected. O(its owners),
        amortised.
        """
        self._refresh(self.index.withdraw(block))

    def _refresh(self, owners: list[int]) -> bool:
        """The first of a content's cached owners counts as released now. False, and nothing done, if one is active."""
        if any(map(self.references.__getitem__, owners)):
            return False
        self.pin(owners[:1])
        self.release(owners[:1])
        return True

    def forget(self) -> None:
        """Nothing is published any more; cached blocks become free, in their order. O(num_blocks)."""
        cached = list(self.cached())
        self.free.extend(cached)
        self.num_cached = 0
        self._next[self.num_blocks] = self._previous[self.num_blocks] = self.num_blocks
        self.index.clear()
        if self.on_discard is not None and cached:
            self.on_discard(cached)
