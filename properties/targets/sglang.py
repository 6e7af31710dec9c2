"""SGLang as a target: its own prefix cache, allocators and request table, driven as its scheduler drives them.

Everything that decides anything is SGLang's, called by the functions that its scheduler calls: `Req` matches and takes
locks, `alloc_for_extend` and `alloc_for_decode` evict, allocate and write the row, `checkpoint_kv_cache` publishes,
`release_kv_cache` gives back, `SchedulerInvariantChecker` checks. The adapter stands in for the loop around them: it
queues requests, says what a step computes, and admits by the same sum as the scheduler's `PrefillBudget` (free +
evictable, with the request's own prefix locked). There is no model and no GPU: slots are numbers here.

    make          the cache that SGLang builds unless told otherwise: `UnifiedRadixCache` on its Rust tree
    make_python   the same on its Python tree (SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND=python)
    make_radix    `RadixCache`, the base of the pure sliding-window and FlexKV caches
    make_overlap  as `make`, with steps in flight, as the overlapping event loop has them
    make_raw      as `make`, with salts and extra keys passed on as they are (see `_Spaces`)

What it means in the target protocol (docs/your-core.md has the policies):

- A block is a page; page 0 holds what padding writes and is never handed out.
- A request waits after allocate; a step matches and locks it, and prefills it. What is computed at the end of a
  prefill chunk is published, and duplicates are merged then. Decode steps publish nothing; what they computed is
  published when the request has finished. Whole leaves are evicted, too. So the cache forgets earlier than it must,
  and `Policy.complete` is False.
- More than one token of a request that has been prefilled is allocated as speculative decoding does, and not published.
- Freeing a request whose tokens are all computed finishes it. Any other is aborted or retracted, and not published.
- With steps in flight, the next step is scheduled and freed blocks are released before results are known: everything
  that follows comes later in the same CUDA stream. A request freed before the result of its prefill is retracted. The
  loop publishes a chunk when it schedules the next one of the same request. `make_overlap` has no chunks.
- `PrefillBudget` itself keeps more back, a page a request and the tokens it expects to generate: it can make a
  request wait that fits. That is its load policy, and not judged here. What the allocators refuse is judged exactly.

SGLang is imported when the first target is made.

Also imports: sglang, torch, transformers.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import warnings
from array import array
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

from reference import Policy

from ..operations import Configuration, Namespace, Tokens
from ..target import Adapter, Capability, Found, Refused, StepArrays, StepView

__all__ = ["SglangTarget", "make", "make_overlap", "make_python", "make_radix", "make_raw"]

VERSION = "0.5.23"
"""What the adapter was written against."""

_ROWS, _LARGEST = 256, 2**26
"""Most requests at once, and most entries of the request table, as far as 64 requests have room in it."""


class _Placeholders(ModuleType):
    """A module of which nothing is used: every name is an empty class."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Clock:
    """Time as a count of the times it was asked for: runs repeat, and no two nodes of a tree are equally old."""

    perf_counter = staticmethod(time.perf_counter)

    def __init__(self) -> None:
        self.monotonic = itertools.count(1).__next__


@cache
def _load() -> SimpleNamespace:
    """The parts of SGLang that are used, by name. Raises ImportError, saying what to install. Several seconds."""
    stand_ins = ("torchvision", "torchvision.transforms", "torchvision.transforms.functional")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SGLang says of several quantizations that they need a GPU
        try:
            import torch
            from transformers.utils import is_torchvision_available

            # Importing SGLang imports its image processors. They name torchvision, whose wheels come for one build of
            # torch; transformers is asked first, so that it does without and does not take the stand-in for real.
            here = [] if is_torchvision_available() else [name for name in stand_ins if name not in sys.modules]
            for name in here:
                sys.modules[name] = _Placeholders(name)
                sys.modules[name].__spec__ = ModuleSpec(name, None)
            try:
                import sglang
                from sglang.srt.environ import envs
                from sglang.srt.managers import schedule_batch
                from sglang.srt.managers.scheduler_components import invariant_checker
                from sglang.srt.mem_cache import (
                    allocation,
                    allocator,
                    base_prefix_cache,
                    cache_init_params,
                    common,
                    memory_pool,
                    radix_cache,
                    unified_radix_cache,
                )
                from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
                from sglang.srt.runtime_context import get_context
                from sglang.srt.sampling.sampling_params import SamplingParams
            finally:
                for name in here:
                    sys.modules.pop(name, None)
        except ImportError as error:
            raise ImportError(
                f"the target sglang needs sglang {VERSION}, torch and what importing them needs: `make cores` installs "
                f"them in .venv-cores ({error})"
            ) from error
        # As SGLang's own tests do; its functions ask for the configuration of the server here and there.
        get_context().override_server_args(attention_backend="torch_native", device="cpu").install()
    torch.set_num_threads(1)  # tensors of a few elements
    radix_cache.time = _Clock()
    return SimpleNamespace(
        SamplingParams=SamplingParams,
        allocation=allocation,
        allocator=allocator,
        base=base_prefix_cache,
        batch=schedule_batch,
        checker=invariant_checker.SchedulerInvariantChecker,
        common=common,
        envs=envs,
        full=ComponentType.FULL,
        params=cache_init_params.CacheInitParams,
        pool=memory_pool.ReqToTokenPool,
        radix=radix_cache,
        torch=torch,
        unified=unified_radix_cache,
        version=sglang.__version__,
    )


class _Spaces(dict[Namespace, tuple[str | None, str | None, str | None]]):
    """(extra_key, lora_id, cache_salt) by namespace: an adapter is a LoRA's id, a salt a salt, the rest the extra key.

    A client's encoding lies between, since SGLang keeps apart only what it says it does: an empty salt or extra key is
    none, and a LoRA's id is appended to the extra key without anything between them. With `raw` nothing lies between,
    and both can be seen."""

    def __init__(self, raw: bool) -> None:
        super().__init__()
        self._raw = raw

    def __missing__(self, namespace: Namespace) -> tuple[str | None, str | None, str | None]:
        parts = dict(namespace)
        adapter, salt = parts.pop("adapter", None), parts.pop("salt", None)
        if self._raw:
            extra = parts.get("media") if set(parts) <= {"media"} else json.dumps(sorted(parts.items()))
        else:
            extra = json.dumps(sorted(parts.items())) if parts else None
            adapter = adapter if adapter is None else f"lora {adapter}"
            salt = salt if salt is None else f"salt {salt}"
        self[namespace] = extra, adapter, salt
        return self[namespace]


class _Request:
    """A request: SGLang's `Req`, and what the adapter has scheduled of it. prefilled: its prefill is scheduled to its
    end; published: its results are known, too."""

    __slots__ = ("prefilled", "published", "req", "scheduled")

    def __init__(self, req: Any) -> None:
        self.req = req
        self.scheduled = 0
        self.prefilled = False
        self.published = False


class SglangTarget(Adapter):
    """One cache with its pools, driven through the target protocol.

    cache: "rust", "python" or "radix". raw: see `_Spaces`. overlap: whether steps can be in flight.

    Left out are FORK, TRUNCATE and FILL, which SGLang does not have; RESET, which it refuses while anything runs;
    REFUSES, since the code under the scheduler trusts it; INSPECT, since tree nodes have locks and pages have none."""

    capabilities = frozenset({Capability.LOOKUP, Capability.NAMESPACES, Capability.BATCH, Capability.CHECK})

    def __init__(
        self, configuration: Configuration, cache: str = "rust", raw: bool = False, overlap: bool = False
    ) -> None:
        core = self._core = _load()
        size = self._size = configuration.block_size
        slots = configuration.num_blocks * size
        self.name = "sglang" if cache == "rust" else f"sglang ({cache})"
        if overlap:
            self.capabilities = self.capabilities | {Capability.OVERLAP}
        self.policy = Policy(
            num_blocks=configuration.num_blocks + 1,
            block_size=size,
            reserved=frozenset({0}),
            caching=configuration.caching,
            reuse="last_block",
            exact=False,
            publish="dispatch" if overlap else "completion",
            admission="step",
            chunks=not overlap,
            lifetime="stream" if overlap else "steps",
            merges=True,
            complete=False,
        )
        rows = max(64, min(_ROWS, _LARGEST // slots))
        self._rows = core.pool(size=rows, max_context_len=slots + size, device="cpu", enable_memory_saver=False)
        half = core.torch.float16
        if size == 1:
            self._pages = core.allocator.TokenToKVPoolAllocator(slots, half, "cpu", None, need_sort=False)
        else:
            self._pages = core.allocator.PagedTokenToKVPoolAllocator(slots, size, half, "cpu", None, need_sort=False)
            self._pages.use_triton_kernels = False  # also where there is a GPU
        params = core.params(
            disable=not configuration.caching,
            req_to_token_pool=self._rows,
            token_to_kv_pool_allocator=self._pages,
            page_size=size,
        )
        self._tree: Any
        if cache == "radix":
            self._tree = core.radix.RadixCache(params)
        else:
            params.tree_components = (core.full,)
            params.tree_core_backend = cache
            self._tree = core.unified.UnifiedRadixCache(params)
        self._spaces = _Spaces(raw)
        self._live: dict[str, _Request] = {}
        self._sampling = core.SamplingParams(max_new_tokens=1 << 30)
        self._checker = self._make_checker(slots)

    # ---- requests ----------------------------------------------------------------------------------------------------

    def lookup(self, tokens: Tokens, namespace: Namespace) -> Found:
        """What the scheduler would match: all but the last token, whole pages."""
        radix, size = self._core.radix, self._size
        req = self._req("lookup", tokens, namespace)
        key = radix.RadixKey(req.origin_input_ids, req.extra_key, limit=len(tokens) - 1, cache_salt=req.cache_salt)
        match = self._tree.match_prefix(self._core.base.MatchPrefixParams(key=key))
        hit = match.device_prefix_len
        path = self._tree.path_device_indices(match.last_device_node) if hit else None
        return Found(hit, [] if path is None else (path[:hit:size] // size).tolist())

    def _req(self, request: str, tokens: Tokens, namespace: Namespace) -> Any:
        extra, adapter, salt = self._spaces[namespace]
        return self._core.batch.Req(
            request, "", array("q", tokens), self._sampling, extra_key=extra, lora_id=adapter, cache_salt=salt
        )

    def allocate(self, request: str, tokens: Tokens, namespace: Namespace, handle: Any) -> int:
        self._live[request] = _Request(self._req(request, tokens, namespace))
        return 0

    def append(self, request: str, tokens: Tokens) -> None:
        self._live[request].req.output_ids.extend(tokens)

    def free(self, request: str) -> None:
        entry = self._live.pop(request)
        req = entry.req
        if not req.kv.holds_kv:
            return  # it leaves the queue
        batch, pages = self._core.batch, self._pages
        finished = entry.published and entry.scheduled == len(req.origin_input_ids) + len(req.output_ids)
        req.finished_reason = batch.FINISH_LENGTH(0) if finished else batch.FINISH_ABORT()
        pages.free_group_begin()
        self._core.common.release_kv_cache(req, self._tree, checkpoint=finished)
        pages.free_group_end()

    def table(self, request: str) -> list[int]:
        kv, size = self._live[request].req.kv, self._size
        if not kv.holds_kv:
            return []
        row = self._rows.req_to_token[kv.req_pool_idx, : kv.kv_allocated_len : size]
        table: list[int] = (row // size if size > 1 else row).tolist()
        return table

    # ---- steps -------------------------------------------------------------------------------------------------------

    def dispatch(self, work: Sequence[tuple[str, int]]) -> StepView:
        plan = self._admit(work)
        if not plan:
            raise Refused("OutOfBlocks", f"{work[0][0]!r} does not fit: {self._tree.available_and_evictable_str()}")
        prefill = [entry for entry, start, end in plan if not entry.prefilled or end > start + 1]
        decode = [entry for entry, start, end in plan if entry.prefilled and end == start + 1]
        slots: dict[int, list[int]] = {}
        if prefill:
            self._extend(prefill, slots)
        if decode:
            self._decode(decode, slots)
        publish = [(entry, end) for entry, _, end in plan if not entry.prefilled]
        for entry, _, end in plan:
            entry.scheduled = end
            req = entry.req
            if end == len(req.origin_input_ids) + len(req.output_ids):
                entry.prefilled = True
        tables = [self.table(request) for request, _ in work[: len(plan)]]

        def arrays() -> StepArrays:
            spans = [(start, end) for _, start, end in plan]
            rows = sum(end - start for start, end in spans)
            return StepArrays(
                tables=tables,
                context_lengths=[end for _, end in spans],
                cu_seqlens=list(itertools.accumulate((end - start for start, end in spans), initial=0)),
                packed_rows=list(range(rows)),
                row_sequences=[index for index, (start, end) in enumerate(spans) for _ in range(start, end)],
                positions=[position for start, end in spans for position in range(start, end)],
                slots=[slot for entry, _, _ in plan for slot in slots[id(entry)]],
            )

        return StepView(publish, arrays=arrays, starts=[start for _, start, _ in plan])

    def _admit(self, work: Sequence[tuple[str, int]]) -> list[tuple[_Request, int, int]]:
        """(request, start, end) of what the step computes: all that fits, up to the first that does not.

        Waiting requests are matched and locked, as the scheduler's `PrefillAdder` does one by one."""
        tree, pages, size = self._tree, self._pages, self._size
        taken = 0
        plan = []
        for request, count in work:
            entry = self._live[request]
            req = entry.req
            waiting = not req.kv.holds_kv
            if waiting:
                req.init_next_round_input(tree)
                start = req.prefix_len
                lock = tree.lock(req.last_node)
            else:
                req.refresh_fill_ids()
                start = entry.scheduled
            end = max(entry.scheduled + count, start + 1)
            need = (-(-end // size) - -(-start // size)) * size
            if taken + need > pages.available_size() + tree.evictable_size():
                if waiting:
                    tree.unlock(lock)
                break
            if waiting:
                req.lock = lock
            req.prefix_len, req.extend_end = start, end
            taken += need
            plan.append((entry, start, end))
        return plan

    def _extend(self, entries: list[_Request], slots: dict[int, list[int]]) -> None:
        torch = self._core.torch
        reqs = [entry.req for entry in entries]
        ends = torch.tensor([req.extend_end for req in reqs], dtype=torch.int64)
        lengths = [req.extend_len for req in reqs]
        out, _, _ = self._core.allocation.alloc_for_extend(
            self._batch(
                reqs,
                prefix_lens=[req.prefix_len for req in reqs],
                extend_lens=lengths,
                extend_num_tokens=sum(lengths),
                seq_lens=ends,
                seq_lens_cpu=ends,
            )
        )
        given, at = out.tolist(), 0
        for entry, length in zip(entries, lengths, strict=True):
            slots[id(entry)] = given[at : at + length]
            at += length

    def _decode(self, entries: list[_Request], slots: dict[int, list[int]]) -> None:
        torch = self._core.torch
        reqs = [entry.req for entry in entries]
        rows = torch.tensor([req.kv.req_pool_idx for req in reqs], dtype=torch.int64)
        lengths = torch.tensor([entry.scheduled for entry in entries], dtype=torch.int64)
        out = self._core.allocation.alloc_for_decode(
            self._batch(reqs, req_pool_indices=rows, req_pool_indices_cpu=rows, seq_lens=lengths, seq_lens_cpu=lengths),
            token_per_req=1,
        )
        for entry, slot in zip(entries, out.tolist(), strict=True):
            slots[id(entry)] = [slot]

    def _batch(self, reqs: list[Any], **lengths: Any) -> Any:
        """What the allocation functions read of a `ScheduleBatch`."""
        return SimpleNamespace(
            reqs=reqs,
            device="cpu",
            tree_cache=self._tree,
            req_to_token_pool=self._rows,
            hisparse_coordinator=None,
            model_config=_TEXT,
            is_dllm=_no,
            maybe_evict_swa=_no,
            **lengths,
        )

    def complete(self, handle: Any) -> None:
        """As the scheduler does with a prefill's results; there is nothing to do for a decode's."""
        pages = self._pages
        pages.free_group_begin()
        for entry, end in handle:
            if not entry.req.finished():  # freed in flight
                entry.req.extend_end = end
                self._core.common.checkpoint_kv_cache(entry.req, self._tree)
                entry.published = entry.prefilled
        pages.free_group_end()

    # ---- its own invariants ------------------------------------------------------------------------------------------

    def _make_checker(self, slots: int) -> Any:
        observer = SimpleNamespace(
            get_pool_stats=lambda: SimpleNamespace(
                full_available_size=self._pages.available_size(),
                full_evictable_size=self._tree.evictable_size(),
            ),
            session_held_tokens=lambda: 0,
            session_held_req_count=lambda: 0,
        )
        return self._core.checker(
            is_hybrid_swa=False,
            is_hybrid_ssm=False,
            disaggregation_mode=None,
            page_size=self._size,
            full_tokens_per_layer=None,
            swa_tokens_per_layer=None,
            max_total_num_tokens=slots,
            tree_cache=self._tree,
            token_to_kv_pool_allocator=self._pages,
            req_to_token_pool=self._rows,
            pool_stats_observer=observer,
            get_last_batch=lambda: SimpleNamespace(reqs=[entry.req for entry in self._live.values()]),
            get_running_batch=lambda: None,
            scheduler_stage_metrics=None,
        )

    def check(self) -> None:
        """What SGLang checks of itself while it runs: free + evictable + protected + private tokens are all tokens, no
        page is free twice or free and in a row; when nothing runs, that no row is taken, and of the unified cache what
        its `sanity_check` says of its tree. Raises. O(pool + all rows)."""
        with self._core.envs.SGLANG_CHECK_KV_PAGE_INVARIANTS.override(True):
            self._checker.self_check_during_busy()
        tree = self._tree
        total = tree.total_size()
        total = total[0] if isinstance(total, tuple) else total  # (full, of other components)
        if total != tree.evictable_size() + tree.protected_size():
            raise AssertionError(
                f"the tree has {total} tokens; it counts {tree.evictable_size()} evictable and "
                f"{tree.protected_size()} protected ones"
            )
        if not any(entry.req.kv.holds_kv for entry in self._live.values()):
            self._checker._check_req_pool()
            if hasattr(tree, "sanity_check"):
                tree.sanity_check()


_TEXT = SimpleNamespace(is_encoder_decoder=False)


def _no() -> bool:
    return False


def make(configuration: Configuration) -> SglangTarget:
    """The factory that `--target sglang` names."""
    return SglangTarget(configuration)


def make_python(configuration: Configuration) -> SglangTarget:
    return SglangTarget(configuration, cache="python")


def make_radix(configuration: Configuration) -> SglangTarget:
    return SglangTarget(configuration, cache="radix")


def make_overlap(configuration: Configuration) -> SglangTarget:
    return SglangTarget(configuration, overlap=True)


def make_raw(configuration: Configuration) -> SglangTarget:
    return SglangTarget(configuration, raw=True)
