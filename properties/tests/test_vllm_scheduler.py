"""vLLM's adapter beside vLLM's own scheduler: a model is made up, the scheduler decides what each step computes, and
the same is told to the adapter as operations. After every `schedule` and every `update_from_output` both managers must
be in the same state. So what the adapter says of drafts, of asynchronous scheduling and of lookahead is what vLLM does.

The scheduler is the real one. What it reads of a configuration is stated here, since vLLM's own configuration needs the
files of a model. Preemptions are left out: for the manager they are a `free` and an `allocate`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from properties.operations import (
    UNKNOWN,
    Allocate,
    Append,
    Complete,
    Configuration,
    Dispatch,
    Fill,
    Free,
    Operation,
    Truncate,
)
from properties.session import Session
from properties.targets.vllm import NotInstalled, VllmTarget
from reference import Violation

from .support import done
from .test_vllm import installed

BLOCKS = 40


class _Stated(SimpleNamespace):
    """Values of a configuration; what is not stated is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def scheduler_of(target: VllmTarget, drafts: int, asynchronous: bool) -> Any:
    """vLLM's scheduler over a manager like the target's, for a draft model that proposes so many tokens."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    size, blocks = target.policy.block_size, target.policy.num_blocks
    speculative = _Stated(
        num_speculative_tokens=drafts,
        max_num_new_slots_for_drafting=0,
        use_eagle=lambda: False,
        use_eagle_block_drop=lambda: False,
    )
    return (AsyncScheduler if asynchronous else Scheduler)(
        vllm_config=_Stated(
            scheduler_config=_Stated(
                max_num_seqs=16,
                max_num_batched_tokens=64,
                policy="fcfs",
                long_prefill_token_threshold=0,
                enable_chunked_prefill=True,
                watermark=0.0,
                async_scheduling=asynchronous,
            ),
            cache_config=_Stated(num_gpu_blocks=blocks, enable_prefix_caching=True),
            model_config=_Stated(max_model_len=2**20, runner_type="generate"),
            parallel_config=_Stated(
                decode_context_parallel_size=1,
                prefill_context_parallel_size=1,
                pipeline_parallel_size=1,
                data_parallel_index=0,
            ),
            observability_config=_Stated(),
            aux_output_config=_Stated(),
            ec_manager_config=_Stated(get_encoder_cache_manager_obj=lambda: None),
            speculative_config=speculative if drafts else None,
            num_speculative_tokens=drafts,
            num_lookahead_tokens=target.policy.lookahead,
            num_prefill_lookahead_tokens=0,
            max_in_flight_tokens=128,
            max_concurrent_batches=1 + asynchronous,
        ),
        kv_cache_config=target.manager.kv_cache_config,
        structured_output_manager=_Stated(
            accept_tokens=lambda *_: True, validate_tokens=lambda _, tokens: tokens, should_advance=lambda _: False
        ),
        block_size=size,
        hash_block_size=size,
    )


@dataclass
class Flight:
    """A step of both. drafts: of each request that samples in it, how many it verifies."""

    output: Any
    number: int
    drafts: dict[str, int]


class Side:
    """Scheduler and session, driven side by side by a seed."""

    def __init__(
        self,
        asynchronous: bool,
        drafts: int,
        lookahead: int,
        windows: tuple[int | None, ...],
        size: int,
        seed: int,
        mistaken: bool = False,
    ) -> None:
        """mistaken: the adapter takes the scheduler for the other one."""
        sizes = Configuration(num_blocks=BLOCKS, block_size=size)
        self.target = VllmTarget(sizes, windows=windows, asynchronous=asynchronous != mistaken, lookahead=lookahead)
        self.session = Session(self.target, walk_every=1)
        self.scheduler = scheduler_of(self.target, drafts, asynchronous)
        self.asynchronous, self.drafts, self.size = asynchronous, drafts, size
        self.random = Random(f"scheduler/{asynchronous}/{drafts}/{windows}/{size}/{seed}")
        self.flights: deque[Flight] = deque()
        self.seen: list[tuple[int, ...]] = [(0,) * 40]
        self.made = self.steps = 0

    def do(self, operation: Operation) -> None:
        done(self.session, operation)

    @property
    def lines(self) -> dict[str, Any]:
        return self.session.judge.sequences

    def compare(self) -> None:
        theirs, ours = self.scheduler.kv_cache_manager, self.target.manager
        for name in self.lines:
            request, known = self.scheduler.requests[name], self.target._requests[name].known
            assert [*request.all_token_ids] == [*known.all_token_ids]
            assert theirs.get_block_ids(name) == ours.get_block_ids(known.request_id)
            assert request.num_computed_tokens == known.num_computed_tokens
        pools = theirs.block_pool, ours.block_pool
        queues = [[block.block_id for block in pool.free_block_queue.get_all_free_blocks()] for pool in pools]
        assert queues[0] == queues[1]
        blocks = [[(block.ref_cnt, block.block_hash) for block in pool.blocks] for pool in pools]
        assert blocks[0] == blocks[1]

    def arrive(self) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        random, name = self.random, f"q{self.made}"
        self.made += 1
        prompt = random.choice(self.seen)[: random.randrange(3 * self.size + 1)]
        prompt += tuple(random.randrange(2) for _ in range(random.randrange(1, 2 * self.size + 1)))
        self.scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=list(prompt),
                sampling_params=SamplingParams(max_tokens=10**6, ignore_eos=True),
                pooling_params=None,
                arrival_time=0.0,
                block_hasher=self.target._hasher,
            )
        )
        self.do(Allocate(name, prompt))

    def leave(self) -> None:
        from vllm.v1.request import RequestStatus

        name = self.random.choice(list(self.lines))
        self.seen.append((*self.scheduler.requests[name].all_token_ids, *(0,) * 9))
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        self.do(Free(name))
        self.compare()

    def crowded(self) -> bool:
        """Whether the next steps might preempt somebody."""
        ahead = 3 * (self.drafts + 1) + self.target.policy.lookahead
        need = sum(-(-(len(line.tokens) + ahead) // self.size) + 1 for line in self.lines.values())
        held = sum(len(line.table) for line in self.lines.values())
        return need * self.target.policy.groups - held > self.session.judge.blocks.available

    def step(self) -> bool:
        """`schedule`, and what it schedules as operations. False if there is nothing to do."""
        output = self.scheduler.schedule()
        if not output.num_scheduled_tokens:
            return False
        self.steps += 1
        work, drafts = [], {}
        for name in output.num_scheduled_tokens:
            request, line = self.scheduler.requests[name], self.lines[name]
            unknown = request.num_computed_tokens - len(line.tokens)
            if unknown > 0:
                self.do(Append(name, (UNKNOWN,) * unknown))
            work.append((name, request.num_computed_tokens - line.scheduled))
            if not request.is_prefill_chunk:
                drafts[name] = len(output.scheduled_spec_decode_tokens.get(name, ()))
        self.do(Dispatch(self.steps, tuple(work)))
        self.flights.append(Flight(output, self.steps, drafts))
        self.compare()
        return True

    def finish(self) -> None:
        """`update_from_output` of the oldest step: of its drafts some of the first are accepted."""
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        random, flight = self.random, self.flights.popleft()
        names = list(flight.output.num_scheduled_tokens)
        sampled = {name: [random.randrange(2)] for name in flight.drafts}
        for name, drafts in flight.drafts.items():
            sampled[name] += [random.randrange(2) for _ in range(random.randrange(drafts + 1))]
        self.scheduler.update_from_output(
            flight.output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: at for at, name in enumerate(names)},
                sampled_token_ids=[sampled.get(name, []) for name in names],
            ),
        )
        if self.drafts and not self.asynchronous:
            proposed = [[7] * random.randrange(self.drafts + 1) for _ in sampled]
            self.scheduler.update_draft_token_ids(DraftTokenIds(list(sampled), proposed))
        self.do(Complete(flight.number))
        for name, tokens in sampled.items():
            line = self.lines.get(name)
            if line is None:
                continue
            rejected = flight.drafts[name] + 1 - len(tokens)
            if rejected:
                self.do(Truncate(name, line.scheduled - rejected))
            named = line.num_named
            placed = len(line.tokens) - named
            if tokens[:placed]:
                self.do(Fill(name, named, tuple(tokens[:placed])))
            if tokens[placed:]:
                self.do(Append(name, tuple(tokens[placed:])))
        self.compare()

    def run(self, turns: int = 60) -> dict[str, int]:
        for _ in range(turns):
            if len(self.lines) < 3 and self.random.random() < 0.5:
                self.arrive()
            if self.lines and self.crowded():
                while self.flights:
                    self.finish()
                self.leave()
                continue
            if self.lines and self.random.random() < 0.05:
                self.leave()  # in flight, too
            busy = self.step()
            depth = 1 if self.asynchronous and busy and self.random.random() < 0.7 else 0
            while len(self.flights) > depth:
                self.finish()
        return self.session.judge.events


def side_of(*values: Any, **named: Any) -> Side:
    """A `Side`. Skips where vLLM cannot be imported."""
    try:
        return Side(*values, **named)
    except NotInstalled as error:
        pytest.skip(str(error))


@installed
@pytest.mark.parametrize("windows", [(None,), (5,), (None, 4)], ids=str)
@pytest.mark.parametrize(("drafts", "lookahead"), [(0, 0), (2, 0), (3, 3)])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])
def test_the_adapter_does_what_the_scheduler_does(
    asynchronous: bool, drafts: int, lookahead: int, windows: tuple[int | None, ...]
) -> None:
    met: set[str] = set()
    for size in (1, 2, 4):
        for seed in range(2):
            side = side_of(asynchronous, drafts, lookahead, windows, size, seed)
            met |= {name for name, count in side.run().items() if count}
            assert side.steps > 20
    assert {"hit on a cached block", "published a duplicate"} & met
    assert ("computed tokens rolled back" in met) == bool(drafts)
    assert ("placeholder dispatched" in met) == bool(drafts or asynchronous)
    assert ("truncated while in flight" in met) == bool(drafts and asynchronous)


@installed
def test_an_adapter_that_takes_one_scheduler_for_the_other_is_found() -> None:
    with pytest.raises(AssertionError) as caught:
        side_of(True, 2, 0, (None,), 2, 0, mistaken=True).run()
    assert not isinstance(caught.value, Violation)
