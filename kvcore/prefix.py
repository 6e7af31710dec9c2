"""The index from content to the blocks that hold it.

A *content* is a whole history: a namespace and every token up to the end of a full block. Contents are interned: equal
histories are one object, so "the same prefix" is `is`, and verifying a candidate costs no more than its own block's
tokens, however long the prefix before it is.

Why not let an entry name its parent by physical block, or compare the block's own tokens only? Because a block is
recycled while longer contents still name it, and then the comparison passes for another prefix (nano-vllm issue 163).
A content lives as long as a block holds it or a longer content needs it, so no other history can take its place.

The second half of that sentence matters after a rollback. Normally, what extends a content is evicted before its last
owner: tables are released tail first, and hits pin whole prefixes. But a truncation takes a block out of the index at
once, even if a longer content that others built on it is still cached. Its content then becomes an *orphan*. It is not
found; if the same history is computed again, it is the same content again, and what extends it is found again. Orphans
that nothing extends are swept out once there are as many as blocks (or twice as many as the last sweep kept). So a
rollback costs O(1), amortised, and no orphan outlives what needs it by more than one sweep.

The index is a dictionary from *links* to blocks: the hash of everything before a block, and the block's own tokens. The
dictionary compares links in full, so tokens cannot collide; the hash in them can, and then the histories differ and
`is` says so. Any hash function is correct, even a constant one.

Duplicates: two requests may compute the same content at the same time in two blocks. Both stay, as two *owners* of one
content (block tables are append-only, so neither is remapped; vLLM chooses the same). The content is found as long as
one of them is left, which is what an index with one block per key gets wrong (nano-vllm issue 219).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any
from weakref import WeakValueDictionary

__all__ = ["Content", "PrefixIndex", "Root"]


class Root:
    """The empty history of one namespace: what a first block's content names as its parent."""

    __slots__ = ("__weakref__", "encoding")

    def __init__(self, encoding: bytes) -> None:
        self.encoding = encoding


Content = tuple[Any, bytes]
"""(parent, link): the content before this one, or a `Root`; and what the index finds it by. Compare with `is` only.

A plain tuple, because one is made for every block that is published.
"""


class PrefixIndex:
    """Finds blocks by link and verifies them. Methods are O(1) a block; a collision or duplicate costs its bucket.

    held: for each block, the content it is published with, or None.
    """

    __slots__ = ("_first", "_more", "_num_orphans", "_orphans", "_roots", "_sweep_at", "held")

    def __init__(self, num_blocks: int) -> None:
        self.held: list[Content | None] = [None] * num_blocks
        self._first: dict[bytes, int] = {}
        self._more: dict[bytes, list[int]] = {}  # further blocks with the same link: duplicates, colliding histories
        self._orphans: dict[bytes, list[Content]] = {}  # by link; rolled back, and perhaps extended by something
        self._num_orphans = 0
        self._sweep_at = num_blocks
        self._roots: WeakValueDictionary[bytes, Root] = WeakValueDictionary()

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """Every (link, block) entry. O(index)."""
        yield from self._first.items()
        for link, blocks in self._more.items():
            for block in blocks:
                yield link, block

    def root(self, encoding: bytes) -> Root:
        """The root of a namespace. The same object for as long as anything is published under it. O(1)."""
        root = self._roots.get(encoding)
        if root is None:
            root = self._roots[encoding] = Root(encoding)
        return root

    def walk(self, root: Root, links: Iterable[bytes], references: Sequence[int]) -> list[int]:
        """Blocks that hold `links` from `root` on, as far as the index reaches. O(hits).

        Of several owners an active one is taken before a cached one, then the earliest published.
        """
        first, more, held = self._first, self._more, self.held
        parent: Root | Content = root
        blocks = []
        for link in links:
            block = first.get(link)
            if block is None:
                break
            if link in more:
                owners = self._owners(link, parent)
                if not owners:
                    break
                block = owners[0]
                if not references[block]:
                    block = next(filter(references.__getitem__, owners), block)
            content = held[block]
            assert content is not None
            if content[0] is not parent:
                break
            parent = content
            blocks.append(block)
        return blocks

    def publish(self, blocks: Iterable[int], parent: Root | Content, links: Iterable[bytes]) -> None:
        """From now on `blocks` hold `links` after `parent` and can be hit. O(blocks).

        A block that is published already is skipped: a fork shares it and published it first, with the same content.
        """
        first, held, orphans = self._first, self.held, self._orphans
        for block, link in zip(blocks, links, strict=True):
            content = held[block]
            if content is None:
                if first.setdefault(link, block) != block:
                    twins = self._owners(link, parent)
                    self._more.setdefault(link, []).append(block)
                    content = held[twins[0]] if twins else None
                if content is None:
                    content = self._adopt(parent, link) if orphans and link in orphans else (parent, link)
                held[block] = content
            parent = content

    def remove(self, blocks: Iterable[int]) -> None:
        """`blocks` leave the index: only the entries that point at these blocks; a duplicate's entry stays. O(blocks).

        A block that is not in the index is skipped.
        """
        first, more, held = self._first, self._more, self.held
        for block in blocks:
            content = held[block]
            if content is None:
                continue
            held[block] = None
            link = content[1]
            if not more or link not in more:
                del first[link]
                continue
            others = more[link]
            if first[link] == block:
                first[link] = others.pop(0)
            else:
                others.remove(block)
            if not others:
                del more[link]

    def withdraw(self, block: int) -> list[int]:
        """An active `block` is rolled back: it leaves the index, if it is in it. O(its owners), amortised.

        Returns the other blocks that hold the same content, earliest published first.
        """
        content = self.held[block]
        if content is None:
            return []
        self.remove((block,))
        owners = self.owners(content)
        if not owners:
            self._orphans.setdefault(content[1], []).append(content)
            self._num_orphans += 1
            if self._num_orphans > self._sweep_at:
                self._sweep()
        return owners

    def owners(self, content: Content) -> list[int]:
        """The blocks that hold `content`, earliest published first; none for an orphan. O(bucket)."""
        parent, link = content
        return self._owners(link, parent) if link in self._first else []

    def orphans(self) -> Iterator[Content]:
        """Contents that were rolled back and may still be extended by something. O(orphans)."""
        for contents in self._orphans.values():
            yield from contents

    def __deepcopy__(self, memo: dict[int, Any]) -> PrefixIndex:
        """A copy whose contents are its own. O(index); recursion as deep as the longest prefix has blocks."""
        index = PrefixIndex(0)
        memo[id(self)] = index
        index.held = deepcopy(self.held, memo)
        index._first = self._first.copy()
        index._more = {link: blocks.copy() for link, blocks in self._more.items()}
        index._orphans = deepcopy(self._orphans, memo)
        index._num_orphans, index._sweep_at = self._num_orphans, self._sweep_at
        # A weak dictionary would be copied with the old roots as values, which no copied content names as its parent.
        for encoding, root in self._roots.items():
            index._roots[encoding] = deepcopy(root, memo)
        return index

    def clear(self) -> None:
        """Forget everything. O(num_blocks)."""
        self._orphans.clear()
        self._num_orphans = 0
        self._sweep_at = len(self.held)
        self.held[:] = [None] * len(self.held)
        self._first.clear()
        self._more.clear()

    def _adopt(self, parent: Root | Content, link: bytes) -> Content:
        """The orphan that is `link` after `parent`, no longer an orphan; a new content if there is none. O(bucket)."""
        contents = self._orphans[link]
        for at, content in enumerate(contents):
            if content[0] is parent:
                del contents[at]
                self._num_orphans -= 1
                if not contents:
                    del self._orphans[link]
                return content
        return parent, link

    def _sweep(self) -> None:
        """Drop the orphans that nothing in the index extends, however indirectly. O(num_blocks + orphans)."""
        needed: set[int] = set()
        for content in self.held:
            parent = content[0] if content is not None else None
            while isinstance(parent, tuple) and id(parent) not in needed:
                needed.add(id(parent))
                parent = parent[0]
        kept: dict[bytes, list[Content]] = {}
        for orphan in self.orphans():
            if id(orphan) in needed:
                kept.setdefault(orphan[1], []).append(orphan)
        self._orphans = kept
        self._num_orphans = sum(map(len, kept.values()))
        self._sweep_at = max(len(self.held), 2 * self._num_orphans)

    def _owners(self, link: bytes, parent: Root | Content) -> list[int]:
        """All blocks that hold exactly `link` after `parent`, earliest published first. O(bucket)."""
        found = []
        for block in (self._first[link], *self._more.get(link, ())):
            content = self.held[block]
            if content is not None and content[0] is parent:
                found.append(block)
        return found
