"""What bookkeeping does not show: counters, memory, namespaces that collide, keys.

Each is a change of kvcore's source that leaves every table, reference and published block as it was.
"""

from __future__ import annotations

from collections.abc import Callable

from .fault import Came, Fault, Place, Wrong, fault

_MANAGER = "        self._sequences: dict[Hashable, Sequence] = {}\n"
_ADMITTED = "        self._sequences[request] = sequence\n        self._counters.queried_tokens += length\n"
_ENCODING = '        object.__setattr__(self, "encoding", b"".join(parts))\n'
_PART = '            raw = value.encode("utf-8", "surrogatepass")\n'
_TAGGED = '            parts.append(b"%s:%d:%s" % (part.name.encode(), len(raw), raw))\n'
_PRECISE = "            parts.append(part.name.encode() + raw)\n"


def _planted(
    name: str,
    what: str,
    engine: str,
    expected: str,
    *changes: tuple[str, str, str],
    seconds: int = 20,
    quick: bool = False,
) -> Fault:
    """kvcore with (file, old, new) changed, which `engine` must find as `expected`."""

    def attempt(place: Place) -> Came:
        place.write(
            "planted.py",
            f"from fuzz.zoo.planting import Change, planted\n\nmake = planted([Change(*one) for one in {changes!r}])\n",
        )
        flags = ("--target", "planted:make", "--engine", engine, "--budget", f"{seconds}s", "--seed", "1")
        said = place.fuzz("run", *flags, "--shrink", "0", "--max-findings", 1)
        said.must(1, expected, harm="false green")
        found = {finding["property"] for finding in place.findings()}
        if found != {expected}:
            raise Wrong(f"wrong blame: {', '.join(sorted(found))} instead of {expected}")
        return said.came(expected)

    return fault(name, what, quick=quick)(_named(attempt))


def _named(attempt: Callable[[Place], Came]) -> Callable[[Place], Came]:
    attempt.__module__ = __name__
    return attempt


# ---- counters --------------------------------------------------------------------------------------------------------

refused_counts = _planted(
    "counter-of-a-refused-call",
    "a request that is refused counts as queried",
    "walk",
    "COUNTERS",
    (
        "manager.py",
        "        misses = num_blocks - hits\n",
        "        misses = num_blocks - hits\n        self._counters.queried_tokens += length\n",
    ),
    (
        "manager.py",
        "        self._counters.queried_tokens += length\n        self._counters.hit",
        "        self._counters.hit",
    ),
    quick=True,
)
hits_of_blocks = _planted(
    "counter-of-hit-blocks",
    "the hit tokens of a prompt that is hit as a whole are counted with its last token",
    "walk",
    "COUNTERS",
    ("manager.py", "self._counters.hit_tokens += hit_tokens", "self._counters.hit_tokens += hits * self._block_size"),
)
evicted_free = _planted(
    "counter-of-evictions",
    "free blocks that are taken count as evicted",
    "walk",
    "COUNTERS",
    ("pool.py", "self.evictions += missing", "self.evictions += count"),
)
refusals_lost = _planted(
    "counter-of-refusals",
    "a request that can never fit does not count as refused",
    "walk",
    "COUNTERS",
    (
        "manager.py",
        "        self._counters.refusals += 1\n",
        "        self._counters.refusals += error is not NeverFits\n",
    ),
)
copies_twice = _planted(
    "counter-of-copies",
    "a copy counts when it is begun and when it is carried out",
    "walk",
    "COUNTERS",
    (
        "manager.py",
        "            if sequence.pending is not None:\n                step.copies",
        "            if sequence.pending is not None:\n                self._counters.copied_blocks += 1\n"
        "                step.copies",
    ),
)

# ---- namespaces that collide -----------------------------------------------------------------------------------------

eight_bits = _planted(
    "namespace-of-8-bits",
    "a namespace is reduced to 8 bits of a hash",
    "namespaces",
    "ISOLATION",
    (
        "identity.py",
        _ENCODING,
        '        object.__setattr__(self, "encoding", xxhash.xxh3_128_digest(b"".join(parts))[:1])\n',
    ),
    quick=True,
)
sixteen_bits = _planted(
    "namespace-of-16-bits",
    "a namespace is reduced to 16 bits of a hash",
    "namespaces",
    "ISOLATION",
    (
        "identity.py",
        _ENCODING,
        '        object.__setattr__(self, "encoding", xxhash.xxh3_128_digest(b"".join(parts))[:2])\n',
    ),
)
twenty_four_bits = _planted(
    "namespace-of-24-bits",
    "a namespace is reduced to 24 bits of a hash",
    "namespaces",
    "ISOLATION",
    (
        "identity.py",
        _ENCODING,
        '        object.__setattr__(self, "encoding", xxhash.xxh3_128_digest(b"".join(parts))[:3])\n',
    ),
    seconds=60,
)
joined = _planted(
    "namespace-joined",
    "the parts of a namespace are joined with nothing between",
    "namespaces",
    "ISOLATION",
    ("identity.py", _TAGGED, "            parts.append(raw)\n"),
)
unframed = _planted(
    "namespace-unframed",
    "the parts of a namespace are joined with their names and without their lengths",
    "namespaces",
    "ISOLATION",
    ("identity.py", _TAGGED, _PRECISE),
)
first_only = _planted(
    "namespace-first-part",
    "only the first part of a namespace counts",
    "namespaces",
    "ISOLATION",
    ("identity.py", _ENCODING, '        object.__setattr__(self, "encoding", b"".join(parts[:1]))\n'),
)
cut_off = _planted(
    "namespace-cut-off",
    "only the first 64 bytes of a part count",
    "namespaces",
    "ISOLATION",
    ("identity.py", _PART, '            raw = value.encode("utf-8", "surrogatepass")[:64]\n'),
)
replaced = _planted(
    "namespace-surrogates",
    "what UTF-8 does not encode is replaced by a question mark",
    "namespaces",
    "ISOLATION",
    ("identity.py", _PART, '            raw = value.encode("utf-8", "replace")\n'),
)
normalized = _planted(
    "namespace-normalized",
    "a part of a namespace is put into a normal form of Unicode",
    "namespaces",
    "ISOLATION",
    ("identity.py", _PART, '            raw = unicodedata.normalize("NFKC", value).encode("utf-8", "surrogatepass")\n'),
    ("identity.py", "from array import array\n", "import unicodedata\nfrom array import array\n"),
)

# ---- what grows ------------------------------------------------------------------------------------------------------

kept_requests = _planted(
    "memory-per-request",
    "a dictionary has an entry for each request, and never loses one",
    "endurance",
    "GROWTH",
    ("manager.py", _MANAGER, f"{_MANAGER}        self._begun: dict[Hashable, int] = {{}}\n"),
    ("manager.py", _ADMITTED, f"        self._begun[request] = self._next_step\n{_ADMITTED}"),
    seconds=40,
)
kept_namespaces = _planted(
    "memory-per-namespace",
    "the index keeps each namespace that it has met",
    "endurance",
    "GROWTH",
    ("prefix.py", "WeakValueDictionary[bytes, Root] = WeakValueDictionary()", "dict[bytes, Root] = {}"),
    seconds=40,
)
kept_orphans = _planted(
    "memory-of-rolled-back",
    "what was rolled back stays in the index, though nothing extends it",
    "endurance",
    "GROWTH",
    ("prefix.py", "self._sweep_at = max(len(self.held), 2 * self._num_orphans)", "self._sweep_at = 1 << 60"),
    ("prefix.py", "        self._sweep_at = num_blocks\n", "        self._sweep_at = 1 << 60\n"),
    seconds=240,
)
scanned = _planted(
    "cost-of-age",
    "each admission looks through a list of the requests that there have been",
    "endurance",
    "GROWTH",
    ("manager.py", _MANAGER, f"{_MANAGER}        self._before: list[Hashable] = []\n"),
    (
        "manager.py",
        _ADMITTED,
        "        if not any(one == request for one in self._before):\n"
        f"            self._before.append(request)\n{_ADMITTED}",
    ),
    seconds=40,
)

squared = _planted(
    "cost-of-length",
    "each admission compares each of its blocks with all before it",
    "endurance",
    "GROWTH",
    (
        "manager.py",
        "        sequence = Sequence(request, namespace, prompt, blocks, self._epoch)\n",
        "        assert not any(one == two for at, one in enumerate(blocks) for two in blocks[:at])\n"
        "        sequence = Sequence(request, namespace, prompt, blocks, self._epoch)\n",
    ),
)

# ---- keys ------------------------------------------------------------------------------------------------------------

own_keys = _planted(
    "keys-of-one-process",
    "keys are made of hash(), which every process seeds anew",
    "keys",
    "KEYS",
    (
        "identity.py",
        "default_hash: HashFunction = xxhash.xxh3_128_digest\n",
        "def default_hash(data: bytes) -> bytes:\n    return hash(data).to_bytes(16, 'big', signed=True)\n",
    ),
)


# ---- padding ---------------------------------------------------------------------------------------------------------

padding_writes = _planted(
    "padding-that-writes",
    "rows that fill a batch up to a fixed size write to slot 0",
    "walk",
    "MAPPING",
    (
        "batch.py",
        "            slot_mapping=_extend(self.slot_mapping, wanted_tokens, -1),\n",
        "            slot_mapping=_extend(self.slot_mapping, wanted_tokens, 0),\n",
    ),
    quick=True,
)
padding_reads = _planted(
    "padding-that-reads",
    "sequences that fill a batch up to a fixed size have a token to read",
    "walk",
    "MAPPING",
    (
        "batch.py",
        "            context_lengths=_extend(self.context_lengths, wanted_rows, 0),\n",
        "            context_lengths=_extend(self.context_lengths, wanted_rows, 1),\n",
    ),
)


@fault("ledger-of-what-is-not-checked", "a target without counters, footprint and keys is tested", quick=True)
def not_checked(place: Place) -> Came:
    place.write(
        "modest.py",
        """
        from properties.target import Capability
        from properties.targets.kvcore import KvcoreTarget


        class Modest(KvcoreTarget):
            capabilities = KvcoreTarget.capabilities - {Capability.COUNTERS, Capability.FOOTPRINT, Capability.KEYS}


        make = Modest
        """,
    )
    said = place.fuzz("run", "--target", "modest:make", "--engine", "walk", "--budget", "1s")
    said.must(0, "COUNTERS", "GROWTH", "KEYS", harm="false green")
    told = place.summary()["properties"]
    for name, capability in (("COUNTERS", "COUNTERS"), ("GROWTH", "FOOTPRINT"), ("KEYS", "KEYS")):
        if capability not in told[name]:
            raise Wrong(f"false green: {name} is {told[name]!r}")
    return said.came("said in the summary, each with the capability")
