"""Faults planted by hand in the kernels and in what plans and launches them: ways in which real paged attention kernels
have been wrong, as changes of kvcore's source.

`kills` lists the properties that may name the fault, and `by` says which check must find it:

- "cases": the search of the commit profile (`properties.machines.attention.run_cases`), with its seed;
- "machine": the allocator's machine with the kernels beside it (`properties.attention.law`), by its tags;
- "large": `properties/attention/tests/test_large.py`: addresses beyond 2**31 elements, positions beyond 2**24;
- "control": a check that must raise an alarm, and is tried with something to be alarmed at;
- "nothing": no result can change, and `why` says why not. They must survive; each is a promise of the design.

References are to public issues of the same class: `vLLM 47305` is issue or pull request 47305 of vllm-project/vllm, and
so on.
"""

from __future__ import annotations

from dataclasses import dataclass

from fuzz.planting import Change

__all__ = ["FAULTS", "KernelFault"]


@dataclass(frozen=True)
class KernelFault:
    """area: of what class the fault is. where: the scenario of "large". why: for those that must survive."""

    name: str
    area: str
    changes: tuple[Change, ...]
    kills: frozenset[str]
    by: str = "cases"
    where: str = ""
    why: str = ""


_FOUND: list[KernelFault] = []
_AREA = [""]


def _area(name: str) -> None:
    _AREA[0] = name


def _fault(name: str, kills: str, *changes: Change, by: str = "cases", large: str = "") -> None:
    by = "large" if large else by
    _FOUND.append(KernelFault(name, _AREA[0], changes, frozenset(kills.split()), by, large))


def _same(name: str, why: str, *changes: Change) -> None:
    _FOUND.append(KernelFault(name, _AREA[0], changes, frozenset(), "nothing", why=why))


def _attend(old: str, new: str) -> Change:
    return Change("kernels/attention.py", old, new)


def _cache(old: str, new: str) -> Change:
    return Change("kernels/cache.py", old, new)


def _plan(old: str, new: str) -> Change:
    return Change("kernels/plan.py", old, new)


def _calls(old: str, new: str) -> Change:
    return Change("kernels/calls.py", old, new)


_ANY = "BOUNDS EQUIVALENCE"
"""Where it depends on the case which shows first: a number that is wrong, or what was touched."""

# ---- masks -----------------------------------------------------------------------------------------------------------

_area("masks")
_SEEN = "seen = (place[None, :] <= position[:, None]) & live[:, None]"
_fault("a row does not see its own key", "EQUIVALENCE", _attend(_SEEN, _SEEN.replace("<=", "<")))
_fault("a row sees the next key", _ANY, _attend(_SEEN, _SEEN.replace("position[:, None])", "position[:, None] + 1)")))
_fault(
    "causal mask aligned top left (FlashAttention before 2.1)",
    "EQUIVALENCE",
    _attend("position = context - length + query\n", "position = query\n"),
)
_fault(
    "mask applied before the softcap, which makes -inf finite",
    "EQUIVALENCE",
    _attend(
        "        if SOFTCAP:\n            score = _tanh(score)",
        "        hidden = (place[None, :] > position[:, None]) & live[:, None]\n"
        '        score = tl.where(hidden, float("-inf"), score)\n'
        "        if SOFTCAP:\n            score = _tanh(score)",
    ),
    _attend('        score = tl.where(seen, score, float("-inf"))\n', ""),
)
_MASKED = 'score = tl.where(seen, score, float("-inf"))'
_fault(
    "hidden scores are -10000, not -inf",
    "EQUIVALENCE",
    _attend(_MASKED, _MASKED.replace('float("-inf")', "-10000.0")),
)
_same(
    "hidden scores are -1e30, not -inf",
    "a row sees at least itself, and 2**-1e30 is 0: a hidden leaf leaves no trace",
    _attend(_MASKED, _MASKED.replace('float("-inf")', "-1.0e30")),
)
_same(
    "rows that belong to nobody see keys",
    "they are computed and not stored",
    _attend(_SEEN, "seen = place[None, :] <= position[:, None]"),
)
_LIVE = "live = (query < length) & (row < QUERIES * GROUP)"
_fault(
    "the rows left over by an odd group compute the next tile's first query (vLLM's unified kernel)",
    _ANY,
    _attend(_LIVE, "live = query < length"),
)
_fault("a tile's rows reach into the next sequence", "BOUNDS", _attend(_LIVE, "live = row < QUERIES * GROUP"))
_COMBINE_LIVE = "live = (query < length) & (row < ROWS // GROUP * GROUP)"
_fault("combine: rows left over by an odd group", _ANY, _attend(_COMBINE_LIVE, "live = query < length"))
_fault(
    "combine: rows reach into the next sequence",
    "BOUNDS",
    _attend(_COMBINE_LIVE, "live = row < ROWS // GROUP * GROUP"),
)

# ---- tails -----------------------------------------------------------------------------------------------------------

_area("tails and NaN")
_LOAD_K = "k = _load_cache(keys + (block * k_block + slot * k_slot)[None, :] + dim[:, None], k_mask, COMPUTE, FP8)"
_LOAD_V = "v = _load_cache(values + (block * v_block + slot * v_slot)[:, None] + dim[None, :], v_mask, COMPUTE, FP8)"
_fault(
    "values of a tile's tail not masked: 0 * NaN (vLLM 641, 47305; FlashAttention 1745)",
    "BOUNDS",
    _attend(_LOAD_V, _LOAD_V.replace("v_mask", "(key >= 0)[:, None] & (dim < DIM)[None, :]")),
)
_fault(
    "keys of a tile's tail not masked: no number shows it",
    "BOUNDS",
    _attend(_LOAD_K, _LOAD_K.replace("k_mask", "(key >= 0)[None, :] & (dim < DIM)[:, None]")),
)
_KNOWN = "known = place < context\n"
_fault(
    "the last block is read to its end (vLLM 44840)",
    "BOUNDS",
    _attend(_KNOWN, "known = place < (context + BLOCK_SIZE - 1) // BLOCK_SIZE * BLOCK_SIZE\n"),
)
_fault("one key too many is known", "BOUNDS", _attend(_KNOWN, "known = place <= context\n"))
_fault("one key too few is known", "EQUIVALENCE", _attend(_KNOWN, "known = place < context - 1\n"))
_PADDED = "        if DIM == PADDED:\n            k_mask"
_fault(
    "head dims that are no power of two are read to the next one (Triton-distributed 202)",
    "BOUNDS",
    _attend(_PADDED, "        if PADDED > 0:\n            k_mask"),
)
_STORE_OUT = "tl.store(where, out.to(out_ptr.dtype.element_ty), mask=row_mask)"
_fault(
    "dims beyond the head are written",
    _ANY,
    _attend(f"\n        {_STORE_OUT}", f"\n        {_STORE_OUT.replace('row_mask', 'live[:, None]')}"),
)
_fault(
    "combine: dims beyond the head are written",
    _ANY,
    _attend(f"\n    {_STORE_OUT}", f"\n    {_STORE_OUT.replace('row_mask', 'live[:, None]')}"),
)
_fault(
    "dims beyond the head are read from the queries",
    "BOUNDS",
    _attend(
        "q = tl.load(q_at, mask=row_mask, other=0.0).to(COMPUTE)",
        "q = tl.load(q_at, mask=live[:, None], other=0.0).to(COMPUTE)",
    ),
)

# ---- tables and blocks -----------------------------------------------------------------------------------------------

_area("tables and blocks")
_BLOCK = "block = tl.load(table + place // BLOCK_SIZE, mask=known, other=0).to(tl.int64)"
_fault(
    "table read without a mask: past its last row's end",
    "BOUNDS",
    _attend(_BLOCK, _BLOCK.replace(", mask=known, other=0", "")),
)
_fault(
    "the table entry after the context is read: stale, -1 or the next row's (vLLM 36939)",
    "BOUNDS",
    _attend(_KNOWN, "known = place < context + BLOCK_SIZE\n"),
)
_fault(
    "block sizes taken for powers of two",
    _ANY,
    _attend("slot = (place % BLOCK_SIZE).to", "slot = (place & (BLOCK_SIZE - 1)).to"),
)
_fault("a block begins one key early", _ANY, _attend(_BLOCK, _BLOCK.replace("place //", "(place + 1) //")))
_fault("all sequences read the first one's table", "BOUNDS", _attend("sequence.to(tl.int64) * table_row", "0"))
_fault(
    "row stride of the table taken from the batch, not from the padded buffer (xllm 932)",
    _ANY,
    _calls("plan.tables.stride(0),", "host.batch.block_tables.shape[1],"),
)
_fault(
    "a block is what it was when the pool was full: block ids wrap at the blocks used",
    _ANY,
    _attend(_BLOCK, _BLOCK + " % tl.num_programs(0)"),
)

# ---- strides and offsets ---------------------------------------------------------------------------------------------

_area("strides and offsets")
_fault(
    "blocks of keys taken for contiguous (aiter 3498: interleaved K and V)",
    _ANY,
    _calls(
        "plan.tables.stride(0),\n                    key_cache.stride(0),",
        "plan.tables.stride(0),\n                    heads * block_size * dim,",
    ),
)
_fault(
    "slots of values taken for contiguous",
    _ANY,
    _calls(
        "value_cache.stride(2),\n                    BLOCK_SIZE=block_size,",
        "dim,\n                    BLOCK_SIZE=block_size,",
    ),
)
_fault("store: slots of keys taken for contiguous", _ANY, _cache("place * key_slot)", "place * DIM)"))
_fault(
    "values read with the keys' strides",
    _ANY,
    _attend("block * v_block + slot * v_slot", "block * k_block + slot * k_slot"),
)
_fault(
    "store: values written with the keys' strides",
    _ANY,
    _cache("block * value_block + place * value_slot", "block * key_block + place * key_slot"),
)
_fault("store: values read with the keys' strides", _ANY, _cache("token[:, None] * v_row", "token[:, None] * k_row"))
_fault(
    "query rows taken for contiguous (FlashInfer 527: a slice of the fused projection)",
    _ANY,
    _calls("queries.stride(0),", "spec.num_heads * dim,"),
)
_fault(
    "output written with the queries' strides",
    _ANY,
    _calls(
        "out.stride(0),\n                    out.stride(1),\n                    plan.tables",
        "queries.stride(0),\n                    queries.stride(1),\n                    plan.tables",
    ),
)
_PACKED = "packed = (begin + query).to(tl.int64)\n    "
_fault(
    "rows of the first sequence for all",
    _ANY,
    _attend(f"{_PACKED}row_mask", "packed = query.to(tl.int64)\n    row_mask"),
)
_fault(
    "combine: rows of the first sequence for all",
    _ANY,
    _attend(f"{_PACKED}where", "packed = query.to(tl.int64)\n    where"),
)

# ---- heads -----------------------------------------------------------------------------------------------------------

_area("heads")
_HEAD = "head = kv_head * GROUP + row % GROUP\n    live = (query < length) & (row < QUERIES"
_COMBINE_HEAD = "head = kv_head * GROUP + row % GROUP\n    live = (query < length) & (row < ROWS"
_OTHER = ("kv_head * GROUP + row % GROUP", "kv_head + row % GROUP * tl.num_programs(1)")
_fault(
    "query heads interleaved over the kv heads",
    "EQUIVALENCE",
    _attend(_HEAD, _HEAD.replace(*_OTHER)),
    _attend(_COMBINE_HEAD, _COMBINE_HEAD.replace(*_OTHER)),
)
_fault("combine: query heads interleaved", "EQUIVALENCE", _attend(_COMBINE_HEAD, _COMBINE_HEAD.replace(*_OTHER)))
_fault(
    "all kv heads read the first one's keys",
    "EQUIVALENCE",
    _attend("keys = k_ptr + kv_head.to(tl.int64) * k_head", "keys = k_ptr"),
)
_fault(
    "store: all kv heads are written to the first one's slots",
    _ANY,
    _cache("tl.store(value_cache_ptr + head * value_head + to_v", "tl.store(value_cache_ptr + to_v"),
)
_CELL = "cell = (partial * tl.num_programs(1) + kv_head) * ROWS\n        tl.store(peak"
_COMBINE_CELL = "cell = ((partial + leaf) * tl.num_programs(1) + kv_head) * ROWS\n"
_fault(
    "partials of all kv heads in one place",
    _ANY,
    _attend(_CELL, _CELL.replace(" + kv_head", "")),
    _attend(_COMBINE_CELL, _COMBINE_CELL.replace(" + kv_head", "")),
)
_ROW = "query = first + row // GROUP\n    "
_fault(
    "combine: rows packed head by head, not query by query",
    _ANY,
    _attend(
        _ROW + _COMBINE_HEAD,
        (_ROW + _COMBINE_HEAD)
        .replace("row // GROUP", "row % (ROWS // GROUP)")
        .replace("row % GROUP", "row // (ROWS // GROUP)"),
    ),
)
_same(
    "rows packed head by head, in both kernels",
    "which row of a program holds which query is nobody's business",
    _attend(
        _ROW + _HEAD, (_ROW + _HEAD).replace("row // GROUP", "row % QUERIES").replace("row % GROUP", "row // QUERIES")
    ),
    _attend(
        _ROW + _COMBINE_HEAD,
        (_ROW + _COMBINE_HEAD)
        .replace("row // GROUP", "row % (ROWS // GROUP)")
        .replace("row % GROUP", "row // (ROWS // GROUP)"),
    ),
)

# ---- scores ----------------------------------------------------------------------------------------------------------

_area("scale, softcap, ALiBi")
_fault(
    "softcap: scale in powers of two",
    "EQUIVALENCE",
    _calls("spec.softmax_scale / cap", "spec.softmax_scale * LOG2E / cap"),
)
_fault("softcap: result not in powers of two", "EQUIVALENCE", _calls("(cap or 1.0) * LOG2E", "cap or LOG2E"))
_same(
    "constants in float32 for float32 queries",
    "all schedules share them, and the factor's rounding moves an output by less than its own last place",
    _calls("(cap or 1.0) * LOG2E]),", "(cap or 1.0) * LOG2E]).astype(np.float32).astype(np.float64),"),
)
_fault(
    "float32 queries computed in float32",
    "EQUIVALENCE",
    _calls("{torch.float32: tl.float64,", "{torch.float32: tl.float32,"),
    _calls("precise = compute is tl.float64", "precise = False"),
)
_fault("weights are powers of e", "EQUIVALENCE", _attend("weight = tl.exp2(score", "weight = tl.exp(score"))
_TANH = "return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0.0, -far, far))"
_fault("tanh: polynomial used far from 0", "EQUIVALENCE", _attend(_TANH, _TANH.replace("0.625", "6.25")))
_fault(
    "tanh: sign lost away from 0", "EQUIVALENCE", _attend(_TANH, _TANH.replace("tl.where(x < 0.0, -far, far)", "far"))
)
_fault("tanh: a coefficient ten times too small", "EQUIVALENCE", _attend("-3.33332819422e-1", "-3.33332819422e-2"))
_fault(
    "tanh in float64: sign lost",
    "EQUIVALENCE",
    _attend("return tl.where(x < 0.0, -far, far)  # what", "return far  # what"),
)
_same(
    "tanh: large arguments not limited",
    "2**inf is inf, and 1 - 2 / inf is 1",
    _attend("tl.minimum(tl.abs(x), 32.0)", "tl.abs(x)"),
)
_DISTANCE = "distance = (place[None, :] - position[:, None]).to(STATE)"
_fault(
    "ALiBi: sign",
    "EQUIVALENCE",
    _attend(_DISTANCE, "distance = (position[:, None] - place[None, :]).to(STATE)"),
)
_fault(
    "ALiBi: slope of the kv head",
    "EQUIVALENCE",
    _attend("slopes_ptr + head, mask", "slopes_ptr + kv_head + head * 0, mask"),
)
_fault(
    "ALiBi: slope of the first row's head for all",
    "EQUIVALENCE",
    _attend("slopes_ptr + head, mask", "slopes_ptr + kv_head * GROUP + head * 0, mask"),
)
_fault(
    "ALiBi: slopes not in powers of two",
    "EQUIVALENCE",
    _calls("np.array(spec.slopes or (0.0,)) * LOG2E", "np.array(spec.slopes or (0.0,))"),
)
_fault(
    "ALiBi: distance from the end of the context, which is right but for rounding",
    "EQUIVALENCE",
    _attend(_DISTANCE, "distance = (place[None, :] - context + 0 * position[:, None]).to(STATE)"),
)
_fault(
    "ALiBi: positions converted before they are subtracted",
    "EQUIVALENCE",
    _attend(_DISTANCE, "distance = place[None, :].to(STATE) - position[:, None].to(STATE)"),
    large="positions",
)
_fault(
    "ALiBi before the softcap",
    "EQUIVALENCE",
    _attend(
        "        if ALIBI:\n            distance = (place[None, :] - position[:, None]).to(STATE)\n"
        "            score = tl.fma(tl.broadcast_to(slope[:, None], score.shape), distance, score)\n",
        "",
    ),
    _attend(
        "        if SOFTCAP:\n            score = _tanh",
        "        if ALIBI:\n            distance = (place[None, :] - position[:, None]).to(STATE)\n"
        "            score = tl.fma(tl.broadcast_to(slope[:, None], score.shape), distance, score)\n"
        "        if SOFTCAP:\n            score = _tanh",
    ),
)

# ---- window ----------------------------------------------------------------------------------------------------------

_area("window")
_WINDOW = "seen = seen & (position[:, None] - place[None, :] < window)"
_fault("window one too wide", "EQUIVALENCE", _attend(_WINDOW, _WINDOW.replace("<", "<=")))
_fault("window one too narrow", "EQUIVALENCE", _attend(_WINDOW, _WINDOW.replace("< window", "< window - 1")))
_LOW = "low = tl.maximum(context - length + first - window + 1, 0) // TILE * TILE"
_fault("window's start taken from the last row", "EQUIVALENCE", _attend(_LOW, _LOW.replace("+ first -", "+ last -")))
_fault("window's start one key late", "EQUIVALENCE", _attend(_LOW, _LOW.replace("+ 1, 0)", "+ 2, 0)")))
_fault(
    "tiles begin at the window's start, not at multiples",
    "EQUIVALENCE",
    _attend(_LOW, _LOW.replace(" // TILE * TILE", "")),
)
_same("window's start ignored", "hidden tiles leave no trace", _attend(_LOW, "low = 0"))
_FIRST_TILE = "np.maximum(start - spec.window + 1, 0) // tree.tile"
_fault(
    "planner: window's start one tile late",
    "EQUIVALENCE",
    _plan(_FIRST_TILE, "np.maximum(start - spec.window + 1 + tree.tile, 0) // tree.tile"),
)
_fault(
    "planner: window's start one key late",
    "EQUIVALENCE",
    _plan(_FIRST_TILE, "np.maximum(start - spec.window + 2, 0) // tree.tile"),
)
_same(
    "planner: leaves before the window",
    "a leaf that no row sees is the identity of merging, exactly",
    _plan(f"np.zeros_like(high) if spec.window is None else {_FIRST_TILE}", "np.zeros_like(high)"),
)

# ---- softmax and empty rows ------------------------------------------------------------------------------------------

_area("softmax and empty rows")
_fault(
    "values not rescaled when the maximum grows",
    "EQUIVALENCE",
    _attend(
        "tl.dot(weight, v, leaf_mixed * old[:, None], out_dtype=STATE)",
        "tl.dot(weight, v, leaf_mixed, out_dtype=STATE)",
    ),
)
_fault(
    "sum of weights not rescaled when the maximum grows",
    "EQUIVALENCE",
    _attend("leaf_total = tl.fma(leaf_total, old, added)", "leaf_total = leaf_total + added"),
)
_GUARD = 'base = tl.where(top == float("-inf"), 0.0, top)\n'
_fault(
    "-inf - -inf in a tile that a row does not see",
    "BOUNDS",
    _attend(f"{_GUARD}        weight", "base = top\n        weight"),
)
_fault(
    "-inf - -inf in a leaf that a row does not see (pegainfer 21)",
    "BOUNDS",
    _attend(f"{_GUARD}    old = tl.exp2(peak", "base = top\n    old = tl.exp2(peak"),
)
_INITIAL = (
    'peak = tl.full([ROWS], float("-inf"), STATE)\n    total = tl.zeros([ROWS], STATE)\n'
    "    mixed = tl.zeros([ROWS, PADDED], STATE)\n    "
)
_fault(
    "the running maximum begins at 0",
    "EQUIVALENCE",
    _attend(
        f"{_INITIAL}leaf_peak",
        f"{_INITIAL}leaf_peak".replace('tl.full([ROWS], float("-inf"), STATE)', "tl.zeros([ROWS], STATE)"),
    ),
)
_fault(
    "a leaf's maximum begins at 0",
    "EQUIVALENCE",
    _attend(
        '            leaf_peak = tl.full([ROWS], float("-inf"), STATE)\n',
        "            leaf_peak = tl.zeros([ROWS], STATE)\n",
    ),
)
_fault(
    "a leaf's state goes on into the next leaf",
    "EQUIVALENCE",
    _attend('            leaf_peak = tl.full([ROWS], float("-inf"), STATE)\n', ""),
    _attend("            leaf_total = tl.zeros([ROWS], STATE)\n", ""),
    _attend("            leaf_mixed = tl.zeros([ROWS, PADDED], STATE)\n", ""),
)
_same(
    "a leaf's sum goes on into the next leaf, its maximum does not",
    "the next tile multiplies it by 2**-inf",
    _attend("            leaf_total = tl.zeros([ROWS], STATE)\n", ""),
)
_ADDED = "added = tl.max(tl.dot(weight, ones, out_dtype=STATE), 1)"
_fault(
    "weights summed before they are rounded",
    "EQUIVALENCE",
    _attend("weight = tl.exp2(score - base[:, None]).to(COMPUTE)", "weight = tl.exp2(score - base[:, None])"),
    _attend(_ADDED, "added = tl.sum(weight, 1)\n        weight = weight.to(COMPUTE)"),
)
_same(
    "weights summed by tl.sum",
    "the interpreter adds a row in one order; on a GPU the order would be the layout's",
    _attend(_ADDED, "added = tl.sum(weight.to(STATE), 1)"),
)
_same(
    "rows without keys divided by 0",
    "a row that is stored sees at least itself, and its largest weight is 1",
    _attend("whole = tl.where(total == 0.0, 1.0, total)", "whole = total"),
)

# ---- order and alignment ---------------------------------------------------------------------------------------------

_area("order and alignment")
_LEAF_END = "if ((start + TILE) % LEAF == 0) | (start + TILE >= high):"
_fault(
    "direct: one softmax over everything, without leaves", "EQUIVALENCE", _attend(_LEAF_END, "if start + TILE >= high:")
)
_fault(
    "leaves counted from where the window begins",
    "EQUIVALENCE",
    _attend(_LEAF_END, _LEAF_END.replace("(start + TILE) %", "(start - low + TILE) %")),
)
_fault("leaves end one tile late", "EQUIVALENCE", _attend(_LEAF_END, _LEAF_END.replace("(start + TILE) %", "start %")))
_fault(
    "tiles aligned to the chunk's start (SGLang: chunks must align to the split)",
    "EQUIVALENCE",
    _attend("    low = 0\n", "    low = (context - length) % TILE - TILE\n"),
    _attend(_KNOWN, "known = (place >= 0) & (place < context)\n"),
    _attend(_SEEN, _SEEN.replace("seen = ", "seen = (place >= 0)[None, :] & ")),
)
_fault(
    "tile width by the longest chunk of the batch (vLLM 51902: 9 or 10 tokens of an unrelated prefill)",
    "EQUIVALENCE",
    _calls(
        "TILE=host.tree.tile,",
        "TILE=host.tree.tile\n"
        "                    if np.diff(host.batch.cu_seqlens).max() < 10\n"
        "                    else min(2 * host.tree.tile, host.tree.leaf & -host.tree.leaf),",
    ),
)
_fault(
    "tile width by the number of rows of a program",
    "EQUIVALENCE",
    _calls(
        "TILE=host.tree.tile,",
        "TILE=host.tree.tile if lane.tiling.rows <= 16 else min(2 * host.tree.tile, host.tree.leaf & -host.tree.leaf),",
    ),
)
_fault(
    "leaf by the load (FlashAttention's num_splits)",
    "EQUIVALENCE",
    _calls("LEAF=host.tree.leaf,", "LEAF=host.tree.leaf if len(merges) else 2 * host.tree.leaf,"),
)
_fault(
    "combine: leaves merged backwards",
    "EQUIVALENCE",
    _attend(_COMBINE_CELL, _COMBINE_CELL.replace("partial + leaf)", "partial + leaves - 1 - leaf)")),
)
_PARTIALS = "np.stack((sequence.repeat(leaves), first.repeat(leaves), leaf, partial), 1)"
_fault(
    "planner: partials in backward order",
    "EQUIVALENCE",
    _plan(_PARTIALS, _PARTIALS.replace("leaf, partial", "leaf, (2 * origin + leaves - 1).repeat(leaves) - partial")),
)
_MERGE_TOTAL = "total = tl.fma(leaf_total, new, total * old)"
_MERGE_MIXED = "mixed = tl.fma(leaf_mixed, tl.broadcast_to(new[:, None], mixed.shape), mixed * old[:, None])"
_fault(
    "merge: factors of the sums exchanged",
    "EQUIVALENCE",
    _attend(_MERGE_TOTAL, "total = tl.fma(leaf_total, old, total * new)"),
)
_fault("merge: values not rescaled", "EQUIVALENCE", _attend(_MERGE_MIXED, "mixed = mixed + leaf_mixed"))
_same(
    "merge: the leaf's product rounded, not the running one's",
    "another contract, kept by all schedules; merging with nothing stays exact",
    _attend(_MERGE_TOTAL, "total = tl.fma(total, old, leaf_total * new)"),
    _attend(
        _MERGE_MIXED, "mixed = tl.fma(mixed, tl.broadcast_to(old[:, None], mixed.shape), leaf_mixed * new[:, None])"
    ),
)
_same(
    "the sign of a zero kept",
    "sums begin at +0 and stay there; see the layers' page for the one exception, an underflow",
    _attend("    return tl.where(out == 0.0, 0.0, out)\n", "    return out\n"),
)

# ---- split -----------------------------------------------------------------------------------------------------------

_area("split and combine")
_fault("combine: last leaf left out", "EQUIVALENCE", _attend("tl.range(0, leaves, num", "tl.range(0, leaves - 1, num"))
_fault(
    "combine: one partial too many, of another row or an earlier step (TensorRT-LLM 18754)",
    _ANY,
    _attend("tl.range(0, leaves, num", "tl.range(0, leaves + 1, num"),
)
_fault(
    "a leaf reaches one tile into the next",
    "EQUIVALENCE",
    _attend("high = tl.minimum(high, leaf * LEAF + LEAF)", "high = tl.minimum(high, leaf * LEAF + LEAF + 1)"),
)
_fault(
    "every leaf begins at the context's start",
    "EQUIVALENCE",
    _attend("low = tl.maximum(low, leaf * LEAF)", "low = low"),
)
_fault(
    "leaf 0 taken for the whole",
    _ANY,
    _attend("    if leaf >= 0:\n        partial", "    if leaf > 0:\n        partial"),
)
_fault(
    "partial numbered by the work item",
    _ANY,
    _attend("partial = tl.load(work_ptr + item * 4 + 3).to(tl.int64)", "partial = item"),
)
_fault(
    "partials kept in 16 bits",
    "EQUIVALENCE",
    _calls(
        "torch.empty((*cells, padded_dim(spec.head_dim)), dtype=state",
        "torch.empty((*cells, padded_dim(spec.head_dim)), dtype=dtype",
    ),
)
_fault(
    "planner: last leaf left out",
    _ANY,
    _plan("leaves = (high - 1) // per_leaf + 1 - begin", "leaves = high // per_leaf - begin"),
)
_fault(
    "planner: leaves numbered from 0, whatever the window",
    "EQUIVALENCE",
    _plan("leaf = partial - origin.repeat(leaves) + begin.repeat(leaves)", "leaf = partial - origin.repeat(leaves)"),
)
_fault(
    "planner: first partial as if all tiles had as many leaves",
    _ANY,
    _plan(
        "merges = np.stack((sequence, first, origin, leaves), 1)",
        "merges = np.stack((sequence, first, np.arange(len(leaves)) * leaves, leaves), 1)",
    ),
)
_fault(
    "planner: query tiles cut as if heads were not packed",
    _ANY,
    _plan("[tiling.rows // spec.group for tiling in tilings]", "[tiling.rows for tiling in tilings]"),
)
_same(
    "planner: leaves beyond the last row",
    "a leaf without keys is the identity of merging, exactly",
    _plan("np.minimum(first + queries[sequence], lengths[sequence])", "(first + queries[sequence])"),
)
_same(
    "planner: work in no order",
    "which item runs first is nobody's business",
    _plan('order = np.argsort(-weights, kind="stable")', "order = np.arange(len(work))"),
)
_same(
    "planner: everything in the first lane",
    "how many rows a program holds is nobody's business",
    _plan("lane = (lengths[:, None] > _FEW_TILES * capacity[:-1]).sum(1)", "lane = np.zeros(count, dtype=np.int64)"),
)

# ---- padding ---------------------------------------------------------------------------------------------------------

_area("padding of captured graphs")
_EXIT = "    if sequence < 0:\n        return\n    first = tl.load({}_ptr"
_fault("a padded work item runs", "BOUNDS", _attend(_EXIT.format("work"), "    first = tl.load(work_ptr"))
_fault("combine: a padded merge item runs", "BOUNDS", _attend(_EXIT.format("merge"), "    first = tl.load(merge_ptr"))
_fault(
    "work lists padded with 0",
    _ANY,
    _plan("result = np.full((size, 4), -1, dtype=np.int32)", "result = np.full((size, 4), 0, dtype=np.int32)"),
)
_fault(
    "padded rows of the output left as they were (Wan2GP 1628: NaN in them)",
    "BOUNDS",
    _calls("    if not plan.full:\n        out.zero_()\n", ""),
)
_fault(
    "a plan loaded into a captured buffer is not sent",
    _ANY,
    _calls("        self._buffer.copy_(torch.from_numpy(_packed(_arrays(plan, padded, lanes))))\n", ""),
)

# ---- store -----------------------------------------------------------------------------------------------------------

_area("store")
_SLOT = "slot = tl.load(slot_ptr + token, mask=token < num_tokens, other=-1)\n"
_fault(
    "slot -1 taken as an index (vLLM 43810: the last slot is written)",
    _ANY,
    _cache("live = slot >= 0\n", "live = token < num_tokens\n"),
)
_fault(
    "slot -1 writes slot 0 (SGLang 32477)",
    _ANY,
    _cache(_SLOT + "    live = slot >= 0\n", _SLOT + "    slot = tl.maximum(slot, 0)\n    live = token < num_tokens\n"),
)
_fault("rows beyond the last token go to slot 0", "BOUNDS", _cache(_SLOT, _SLOT.replace("other=-1", "other=0")))
_fault("slots read beyond the last token (vLLM 13922)", "BOUNDS", _cache(_SLOT, "slot = tl.load(slot_ptr + token)\n"))
_fault(
    "last rows of a step not stored",
    "EQUIVALENCE",
    _calls("(-(-tokens // 16), heads)", "(max(tokens // 16, 1), heads)"),
)
_fault(
    "block sizes taken for powers of two in store",
    _ANY,
    _cache("tl.where(live, slot % BLOCK_SIZE, 0)", "tl.where(live, slot & (BLOCK_SIZE - 1), 0)"),
)
_fault(
    "dims beyond the head are stored",
    _ANY,
    _cache("mask = live[:, None] & (dim < DIM)[None, :]", "mask = live[:, None] & (dim < PADDED)[None, :]"),
)
_fault(
    "tags noted by row, not by slot",
    "FRESHNESS BOUNDS",
    _cache("tl.store(tag_ptr + slot,", "tl.store(tag_ptr + token,"),
    by="machine",
)
_fault(
    "tags noted by the second kv head's program",
    "FRESHNESS",
    _cache("if TAGS and tl.program_id(1) == 0", "if TAGS and tl.program_id(1) == 1"),
    by="machine",
)
_fault(
    "tags of padding noted before the first slot",
    "FRESHNESS BOUNDS",
    _cache("mask=live, other=0), mask=live)", "mask=live, other=0), mask=token < num_tokens)"),
    by="machine",
)

# ---- FP8 -------------------------------------------------------------------------------------------------------------

_area("FP8")
_fault(
    "store: scale multiplied",
    "EQUIVALENCE",
    _cache(
        "k = tl.div_rn(k.to(tl.float32), tl.full(k.shape, 1.0, tl.float32) * tl.load(key_scale_ptr + head))",
        "k = k.to(tl.float32) * tl.load(key_scale_ptr + head)",
    ),
)
_fault(
    "store: scale of the first kv head for all",
    "EQUIVALENCE",
    _cache("tl.load(value_scale_ptr + head)", "tl.load(value_scale_ptr)"),
)
_fault(
    "store: keys' scales for the values",
    "EQUIVALENCE",
    _calls(
        "(slots, slots) if scales is None else (scales[0], scales[1])",
        "(slots, slots) if scales is None else (scales[0], scales[0])",
    ),
)
_fault("store: saturation forgotten", "EQUIVALENCE", _cache("    code = tl.where(size > 0x43E00000, 0x7E, code)\n", ""))
_NORMAL = "normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)"
_fault(
    "store: ties rounded up, not to even",
    "EQUIVALENCE",
    _cache(_NORMAL, "normal = ((size + 0x80000) >> 20) - (120 << 3)"),
)
_fault("store: truncated, not rounded", "EQUIVALENCE", _cache(_NORMAL, "normal = (size >> 20) - (120 << 3)"))
_fault(
    "store: subnormals flushed to 0",
    "EQUIVALENCE",
    _cache("tl.where(size < 0x3C800000, small, normal)", "tl.where(size < 0x3C800000, 0, normal)"),
)
_fault("store: sign lost", "EQUIVALENCE", _cache("return (sign | code).to(tl.uint8)", "return code.to(tl.uint8)"))
_fault(
    "store: multiplied by the reciprocal of the scale",
    "EQUIVALENCE",
    _cache(
        "v = tl.div_rn(v.to(tl.float32), tl.full(v.shape, 1.0, tl.float32) * tl.load(value_scale_ptr + head))",
        "v = v.to(tl.float32) * (1.0 / tl.load(value_scale_ptr + head))",
    ),
)
_fault(
    "keys' scale forgotten",
    "EQUIVALENCE",
    _attend("scale = scale * tl.load(key_scale_ptr + kv_head).to(STATE)", "scale = scale * 1.0"),
)
_fault(
    "scale of the first kv head for all",
    "EQUIVALENCE",
    _attend("scale = scale * tl.load(key_scale_ptr + kv_head)", "scale = scale * tl.load(key_scale_ptr)"),
)
_fault(
    "keys' and values' scales exchanged",
    "EQUIVALENCE",
    _calls(
        "(plan.slopes, plan.slopes) if scales is None else (scales[0], scales[1])",
        "(plan.slopes, plan.slopes) if scales is None else (scales[1], scales[0])",
    ),
)
_fault(
    "values' scale applied to the partials as well",
    "EQUIVALENCE",
    _attend(
        "dim[None, :], mixed, mask=row_mask)",
        "dim[None, :], mixed * value_scale, mask=row_mask)",
    ),
)
_fault(
    "combine: values' scale forgotten",
    "EQUIVALENCE",
    _attend(
        "    if FP8 > 0:\n        value_scale = tl.load(value_scale_ptr + kv_head).to(STATE)\n    out = _finish",
        "    out = _finish",
    ),
)
_fault(
    "bytes: sign lost",
    "EQUIVALENCE",
    _attend("bits = ((wide & 0x80) << 24) | (magnitude << 20)", "bits = magnitude << 20"),
)
_fault("bytes: exponent off by one", "EQUIVALENCE", _attend("* 1.329227995784916e36", "* 6.64613997892458e35"))
_fault(
    "bytes: subnormals flushed to 0",
    "EQUIVALENCE",
    _attend(
        'return tl.where(magnitude == 0x7F, float("nan"), value)',
        'return tl.where(magnitude == 0x7F, float("nan"), tl.where(magnitude < 8, 0.0, value))',
    ),
)
_same(
    "bytes: NaN read as 480",
    "what is stored is never NaN, and nothing else is read; it hides poison, which the suite's own control would say",
    _attend('return tl.where(magnitude == 0x7F, float("nan"), value)', "return value"),
)

# ---- copies ----------------------------------------------------------------------------------------------------------

_area("copies")
_fault(
    "source and destination exchanged",
    _ANY,
    _cache(
        "source = tl.load(pair_ptr + pair * 2)\n    destination = tl.load(pair_ptr + pair * 2 + 1)",
        "source = tl.load(pair_ptr + pair * 2 + 1)\n    destination = tl.load(pair_ptr + pair * 2)",
    ),
)
_fault(
    "only the first pair is copied", _ANY, _cache("    pair = tl.program_id(0)\n", "    pair = tl.program_id(0) * 0\n")
)
_fault(
    "the last words of a block are not copied",
    "EQUIVALENCE",
    _calls("-(-words // chunk))]", "max(words // chunk, 1))]"),
)
_fault(
    "half of each block is copied",
    "EQUIVALENCE",
    _cache(
        "tl.store(base + destination * block_stride + word, data, mask=word < words)",
        "tl.store(base + destination * block_stride + word, data, mask=word < words // 2)",
    ),
)
_fault(
    "words beyond a block are copied",
    _ANY,
    _cache(
        "data = tl.load(base + source * block_stride + word, mask=word < words, other=0)\n"
        "    tl.store(base + destination * block_stride + word, data, mask=word < words)",
        "data = tl.load(base + source * block_stride + word)\n"
        "    tl.store(base + destination * block_stride + word, data)",
    ),
)
_fault("blocks taken for contiguous (interleaved K and V)", _ANY, _calls("flat.stride(1), words,", "words, words,"))

# ---- audit -----------------------------------------------------------------------------------------------------------

_area("audit")
_fault(
    "the audit finds nothing",
    "FRESHNESS",
    _cache("tl.where(tag == expected, -1, tag)", "tl.where(tag == tag, -1, tag)"),
    by="control",
)
_fault(
    "the audit looks at the first block alone",
    "FRESHNESS",
    _cache(
        "block = tl.load(table + position // BLOCK_SIZE, mask=known, other=0).to(tl.int64)",
        "block = tl.load(table + position // BLOCK_SIZE * 0, mask=known, other=0).to(tl.int64)",
    ),
    by="machine",
)
_fault(
    "the audit stops at its first chunk",
    "FRESHNESS",
    _calls("audit_slots[(-(-columns * block_size // chunk), count)]", "audit_slots[(1, count)]"),
    by="control",
)
_fault(
    "a block outside the pool is looked up",
    "BOUNDS",
    _cache("mask=known & inside, other=-2", "mask=known, other=-2"),
    by="control",
)

# ---- 32 bits ---------------------------------------------------------------------------------------------------------

_area("32-bit offsets")
_fault(
    "attend: block ids in 32 bits (vLLM 47671)",
    _ANY,
    _attend(_BLOCK, _BLOCK.replace(".to(tl.int64)", "")),
    large="blocks",
)
_fault(
    "store: slots in 32 bits (aiter 2608)",
    _ANY,
    _cache(_SLOT, _SLOT.replace("other=-1)", "other=-1).to(tl.int32)")),
    large="slots",
)
_fault(
    "store: rows in 32 bits",
    _ANY,
    _cache("token = tl.program_id(0).to(tl.int64) * TOKENS", "token = tl.program_id(0) * TOKENS"),
    large="rows",
)
_fault(
    "copy: blocks in 32 bits (vLLM 50427)",
    _ANY,
    _cache(
        "source = tl.load(pair_ptr + pair * 2)\n    destination = tl.load(pair_ptr + pair * 2 + 1)",
        "source = tl.load(pair_ptr + pair * 2).to(tl.int32)\n"
        "    destination = tl.load(pair_ptr + pair * 2 + 1).to(tl.int32)",
    ),
    large="blocks",
)
_fault(
    "attend: kv heads in 32 bits",
    _ANY,
    _attend("keys = k_ptr + kv_head.to(tl.int64) * k_head", "keys = k_ptr + kv_head * k_head"),
    large="heads",
)
_fault(
    "attend: rows in 32 bits", _ANY, _attend(f"{_PACKED}row_mask", "packed = begin + query\n    row_mask"), large="rows"
)
_fault("combine: rows in 32 bits", _ANY, _attend(f"{_PACKED}where", "packed = begin + query\n    where"), large="rows")
_fault(
    "attend: query heads in 32 bits",
    _ANY,
    _attend("head.to(tl.int64)[:, None] * q_head", "head[:, None] * q_head"),
    large="rows",
)
_fault(
    "attend: rows of the table in 32 bits",
    _ANY,
    _attend("sequence.to(tl.int64) * table_row", "sequence * table_row"),
    large="tables",
)
_fault(
    "attend: partials in 32 bits",
    _ANY,
    _attend("partial = tl.load(work_ptr + item * 4 + 3).to(tl.int64)", "partial = tl.load(work_ptr + item * 4 + 3)"),
    large="partials",
)
_fault(
    "combine: partials in 32 bits",
    _ANY,
    _attend("partial = tl.load(merge_ptr + item * 4 + 2).to(tl.int64)", "partial = tl.load(merge_ptr + item * 4 + 2)"),
    large="partials",
)
_fault(
    "audit: slots in 32 bits",
    _ANY,
    _cache(
        "block = tl.load(table + position // BLOCK_SIZE, mask=known, other=0).to(tl.int64)",
        "block = tl.load(table + position // BLOCK_SIZE, mask=known, other=0)",
    ),
    large="slots",
)

FAULTS: tuple[KernelFault, ...] = tuple(_FOUND)
