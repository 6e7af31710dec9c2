"""Attention: what a kernel must return for the queries of one sequence, as if the cache were not paged at all.

Scaled dot-product attention, softmax(scale * Q K^T) V (Vaswani et al. 2017, "Attention Is All You Need"), causal, with
what today's models add to it: query heads that share key-value heads (Ainslie et al. 2023, "GQA"), a sliding window
(Beltagy et al. 2020, "Longformer"), capped scores (Gemma Team 2024, "Gemma 2"), and linear biases (Press et al. 2021,
"Train Short, Test Long", ALiBi). Every sum is `math.fsum`, which rounds once, so the order of the keys does not matter.

There are no blocks and no slots here: it sees the keys and values of a sequence from its first token on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["attention"]


def attention(
    queries: Sequence[Sequence[Sequence[float]]],
    keys: Sequence[Sequence[Sequence[float]]],
    values: Sequence[Sequence[Sequence[float]]],
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    slopes: Sequence[float] | None = None,
) -> list[list[list[float]]]:
    """What each query reads: [q][query heads][D].

    queries: [q][query heads][D], the last q positions of the context. Query i is at position n - q + i and sees the
    keys from 0 to there (aligned bottom-right: the last query sees all). keys, values: [n][kv heads][D], q <= n. Query
    head h reads kv head h // (query heads // kv heads).

    A score is `scale` times the dot product; then softcap c makes it c * tanh(score / c); then slopes, one a query
    head, add slope * (key's position - query's position). With window w a query sees only its own and the w - 1
    positions before.

    Raises ValueError, saying what was given and what is allowed, for lists that are ragged, empty where they may not
    be, not finite or of shapes that do not fit, q > n, window < 1, and softcap <= 0. O(q n heads D).
    """
    _check(queries, keys, values, scale, window, softcap, slopes)
    output: list[list[list[float]]] = []
    for row, heads in enumerate(queries):
        position = len(keys) - len(queries) + row
        first = 0 if window is None else max(0, position - window + 1)
        seen = range(first, position + 1)  # never empty: a query sees its own key
        output.append([])
        for head, query in enumerate(heads):
            shared = head // (len(heads) // len(keys[0]))
            scores = []
            for at in seen:
                score = scale * math.fsum(a * b for a, b in zip(query, keys[at][shared], strict=True))
                if softcap is not None:
                    score = softcap * math.tanh(score / softcap)
                if slopes is not None:
                    score += slopes[head] * (at - position)
                scores.append(score)
            highest = max(scores)  # subtracted, so that no exponential overflows and at least one is 1
            weights = [math.exp(score - highest) for score in scores]
            total = math.fsum(weights)
            read = zip(*(values[at][shared] for at in seen), strict=True)  # one tuple an element, not a position
            output[-1].append(
                [math.fsum(w * v for w, v in zip(weights, elements, strict=True)) / total for elements in read]
            )
    return output


def _check(
    queries: Sequence[Sequence[Sequence[float]]],
    keys: Sequence[Sequence[Sequence[float]]],
    values: Sequence[Sequence[Sequence[float]]],
    scale: float,
    window: int | None,
    softcap: float | None,
    slopes: Sequence[float] | None,
) -> None:
    q, query_heads, query_size = _shape("queries", queries)
    n, kv_heads, size = _shape("keys", keys)
    if _shape("values", values) != (n, kv_heads, size):
        raise ValueError(f"keys are {[n, kv_heads, size]}, values {list(_shape('values', values))}; they must agree")
    if q > n:
        raise ValueError(f"{q} queries for {n} keys; queries are the last positions of the context, so at most {n}")
    if q and query_heads % kv_heads:
        raise ValueError(f"{query_heads} query heads for {kv_heads} kv heads; the former must be a multiple")
    if q and query_size != size:
        raise ValueError(f"queries have {query_size} elements a head, keys {size}; they must agree")
    if not math.isfinite(scale):
        raise ValueError(f"scale is {scale}; it must be finite")
    if window is not None and window < 1:
        raise ValueError(f"window is {window}; it must be at least 1 (a query's own position), or None")
    if softcap is not None and not 0 < softcap < math.inf:
        raise ValueError(f"softcap is {softcap}; it must be finite and above 0, or None")
    if slopes is not None:
        if q and len(slopes) != query_heads:
            raise ValueError(f"{len(slopes)} slopes for {query_heads} query heads; each needs one")
        if not all(math.isfinite(slope) for slope in slopes):
            raise ValueError(f"slopes are {list(slopes)}; each must be finite")


def _shape(name: str, tensor: Sequence[Sequence[Sequence[float]]]) -> tuple[int, int, int]:
    """(positions, heads, elements) of nested lists; (0, 0, 0) where there are no positions."""
    if not tensor:
        return 0, 0, 0
    heads = len(tensor[0])
    if heads == 0:
        raise ValueError(f"{name} have 0 heads at position 0; there must be at least 1")
    size = len(tensor[0][0])
    if size == 0:
        raise ValueError(f"{name} have 0 elements a head; there must be at least 1")
    for position, row in enumerate(tensor):
        if len(row) != heads:
            raise ValueError(
                f"{name} have {len(row)} heads at position {position}, {heads} in the first; all must agree"
            )
        for head, vector in enumerate(row):
            if len(vector) != size:
                raise ValueError(
                    f"{name} have {len(vector)} elements in head {head} at position {position}, {size} in the first; "
                    "all must agree"
                )
            if not all(math.isfinite(element) for element in vector):
                raise ValueError(f"{name} are {list(vector)} in head {head} at position {position}; all must be finite")
    return len(tensor), heads, size
