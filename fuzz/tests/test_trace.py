"""The trace engine: reading, expansion, the schedule's rules, and whole runs with every property on."""

from __future__ import annotations

import gzip
import json
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.tools import make_trace
from fuzz.traces import formats
from fuzz.traces.bare import Bare
from fuzz.traces.expand import expand
from fuzz.traces.reading import BUILT_IN, read_trace
from fuzz.traces.request import GENERATED, LAST_TOKEN, MAX_HASH_ID, Request, TraceError
from fuzz.traces.run_trace import RECENT, run_trace
from fuzz.traces.schedule import Schedule, Stalled
from properties.operations import Allocate, Append, Complete, Configuration, Dispatch, Free, Lookup, Operation
from properties.session import Outcome
from properties.target import Target
from properties.targets import load

FILE = Path(BUILT_IN)
DONE = Outcome("done")
NO_ROOM = Outcome("refused", "OutOfBlocks")


def target(num_blocks: int, block_size: int = 16, **others: Any) -> Target:
    return load("kvcore")(Configuration(num_blocks=num_blocks, block_size=block_size, **others))


def line(input_length: Any = 600, output_length: Any = 3, hash_ids: Any = (0, 1), **others: Any) -> bytes:
    data = {"input_length": input_length, "output_length": output_length, "hash_ids": hash_ids, **others}
    return json.dumps(data).encode() + b"\n"


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_gzip_and_plain_agree_whatever_the_name(tmp_path: Path) -> None:
    text = FILE.read_bytes()
    (tmp_path / "plain.gz").write_bytes(text)
    (tmp_path / "packed.jsonl").write_bytes(gzip.compress(text))
    requests = read_trace(FILE)
    assert requests == read_trace(tmp_path / "plain.gz") == read_trace(tmp_path / "packed.jsonl")
    assert len(requests) == text.count(b"\n")


def test_blank_lines_and_further_fields_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_bytes(b"\n" + line(timestamp=5) + b"  \n" + line(1, 1, [7]).rstrip())
    assert read_trace(file) == [Request(600, 3, (0, 1)), Request(1, 1, (7,))]


GOOD = line()
MISSING = {
    name: json.dumps({key: value for key, value in json.loads(GOOD).items() if key != name}).encode()
    for name in json.loads(GOOD)
}


@pytest.mark.parametrize(
    ("content", "number", "words"),
    [
        (b"", 0, "no requests"),
        (b"\n \n", 2, "no requests"),
        (GOOD + b'{"input_length": 5,', 2, "not JSON"),
        (GOOD + b"\xff\xfe{}", 2, "not JSON"),
        (GOOD + GOOD + b"[1, 2]\n", 3, "not a JSON object"),
        (MISSING["input_length"], 1, "no field 'input_length'"),
        (MISSING["output_length"], 1, "no field 'output_length'"),
        (MISSING["hash_ids"], 1, "no field 'hash_ids'"),
        (line(input_length="600"), 1, "input_length is '600'"),
        (line(input_length=600.0), 1, "input_length is 600.0"),
        (line(output_length=True), 1, "output_length is True"),
        (line(output_length=0), 1, "output_length is 0"),
        (line(input_length=-600), 1, "input_length is -600"),
        (line(hash_ids=5), 1, "hash_ids is 5"),
        (line(hash_ids=[0, "1"]), 1, "hash_ids contains '1'"),
        (line(hash_ids=[0, -1]), 1, "hash_ids contains -1"),
        (GOOD + line(hash_ids=[0, MAX_HASH_ID + 1]), 2, "int32"),
        (GOOD + line(hash_ids=[0]), 2, "1 hash_ids for input_length 600; expected 2"),
        (GOOD + line(hash_ids=[0, 1, 2]), 2, "3 hash_ids for input_length 600; expected 2"),
        (gzip.compress(GOOD * 3, mtime=0)[:-12], 1, "gzip"),
        (gzip.compress(GOOD * 3, mtime=0)[:14] + b"rubbish", 1, "gzip"),
    ],
)
def test_errors_say_file_line_what_was_found_and_what_was_expected(
    tmp_path: Path, content: bytes, number: int, words: str
) -> None:
    file = tmp_path / "trace"
    file.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(file)
    error = caught.value
    assert words in str(error)
    assert error.file == str(file) and error.line >= number and error.found and error.expected
    assert str(error).startswith(f"{file}:{error.line}: " if error.line else f"{file}: ")
    assert f"expected {error.expected}" in str(error)
    if "gzip" not in words:
        assert error.line == number


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere: there is no such file; expected a request trace"):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(TraceError, match="cannot read it"):
        read_trace(tmp_path)


COMMAS = '''"""Lengths alone, with commas, under a heading."""

from fuzz.traces.format import Format
from fuzz.traces.request import BadLine, Request


class Commas(Format):
    expected = "toy prompt,toy output"

    def __init__(self) -> None:
        self.following = 0

    def recognizes(self, line: bytes) -> bool:
        return line.strip() == b"toy prompt,toy output"

    def request(self, line: bytes) -> Request | None:
        if self.recognizes(line):
            return None
        try:
            prompt, output = map(int, line.split(b","))
        except ValueError:
            raise BadLine(repr(line), self.expected) from None
        first = self.following
        self.following += -(-prompt // 512)
        return Request(prompt, output, tuple(range(first, self.following)))


FORMAT = Commas
'''


def test_a_format_is_a_file_and_is_told_by_the_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "commas.py").write_text(COMMAS)
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])
    file = tmp_path / "trace"
    file.write_bytes(b"\ntoy prompt,toy output\n600,3\n\n5,1\n")
    assert read_trace(file) == [Request(600, 3, (0, 1)), Request(5, 1, (2,))]
    assert run_trace(read_trace(file), target(64)).requests == 2
    assert read_trace(FILE)[0].input_length == json.loads(FILE.read_bytes().splitlines()[0])["input_length"]
    file.write_bytes(b"toy prompt,toy output\nmany\n")
    with pytest.raises(TraceError, match=r"trace:2: .*many.*; expected toy prompt,toy output"):
        read_trace(file)
    sys.modules.pop("fuzz.traces.formats.commas")


# ---- expansion -------------------------------------------------------------------------------------------------------


def test_an_id_stands_for_512_tokens_of_its_own() -> None:
    tokens = expand((3, 0), 700)
    assert type(tokens) is array and tokens.typecode == "i"
    assert list(tokens) == list(range(1536, 2048)) + list(range(188))
    assert list(expand((9,), 1)) == [4608]
    assert expand((MAX_HASH_ID,), 512)[-1] == 512 * MAX_HASH_ID + 511 < LAST_TOKEN - GENERATED + 1
    with pytest.raises(TraceError, match="int32"):
        expand((MAX_HASH_ID + 1,), 512)


# ---- the schedule's rules --------------------------------------------------------------------------------------------


def requests(*shapes: tuple[int, int]) -> list[Request]:
    """Requests of (prompt, output) tokens that share nothing."""
    made, following = [], 0
    for length, output in shapes:
        count = -(-length // 512)
        made.append(Request(length, output, tuple(range(following, following + count))))
        following += count
    return made


def play(schedule: Schedule, judge: Callable[[Operation], Outcome] = lambda operation: DONE) -> Iterator[Operation]:
    """All operations of a schedule, whose outcomes `judge` decides."""
    operation = schedule.next(None)
    while operation is not None:
        yield operation
        operation = schedule.next(judge(operation))


class Refusing:
    """Refuses the operations with these indices (among all), and accepts the others."""

    def __init__(self, *indices: int) -> None:
        self.indices = indices
        self.count = -1

    def __call__(self, operation: Operation) -> Outcome:
        self.count += 1
        return NO_ROOM if self.count in self.indices else DONE


def no_hits(request: str) -> int:
    return 0


def test_one_request_from_beginning_to_end() -> None:
    schedule = Schedule(requests((5, 2)), no_hits, chunk=3)
    first, *rest = play(schedule)
    assert isinstance(first, Allocate) and first.request == "r0" and list(first.tokens) == [0, 1, 2, 3, 4]
    assert rest == [
        Dispatch(1, (("r0", 3),)),
        Complete(1),
        Dispatch(2, (("r0", 2),)),
        Complete(2),
        Append("r0", (2**31 - 1,)),
        Dispatch(3, (("r0", 1),)),
        Complete(3),
        Append("r0", (2**31 - 2,)),
        Dispatch(4, (("r0", 1),)),
        Complete(4),
        Free("r0"),
    ]
    assert (schedule.requests, schedule.prompt_tokens, schedule.output_tokens, schedule.steps) == (1, 5, 2, 4)


def test_hit_tokens_are_not_computed_again() -> None:
    schedule = Schedule(requests((5, 1)), lambda request: 4)
    assert list(play(schedule))[1] == Dispatch(1, (("r0", 1),))
    assert schedule.hit_tokens == 4


def test_outputs_are_cut_and_their_values_occur_once() -> None:
    seen = [
        token
        for operation in play(Schedule(requests((4, 9), (4, 2), (4, 7)), no_hits, max_output=5))
        if isinstance(operation, Append)
        for token in operation.tokens
    ]
    assert seen == list(range(2**31 - 1, 2**31 - 1 - 12, -1))


@pytest.mark.parametrize("overlap", [1, 2, 4])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_concurrency_chunk_and_overlap_are_respected(concurrency: int, overlap: int) -> None:
    shapes = requests(*[(7 + 13 * (number % 5), 1 + number % 4) for number in range(20)])
    schedule = Schedule(shapes, no_hits, concurrency=concurrency, chunk=16, overlap=overlap)
    alive: set[str] = set()
    in_flight: list[int] = []
    most_alive = most_in_flight = most_tokens = 0
    order = []
    for operation in play(schedule):
        if isinstance(operation, Allocate):
            alive.add(operation.request)
            order.append(operation.request)
        elif isinstance(operation, Free):
            alive.remove(operation.request)
        elif isinstance(operation, Dispatch):
            in_flight.append(operation.step)
            counts = [count for _, count in operation.work]
            assert min(counts) > 0
            most_tokens = max(most_tokens, sum(counts))
        elif isinstance(operation, Complete):
            assert operation.step == in_flight.pop(0)
        most_alive = max(most_alive, len(alive))
        most_in_flight = max(most_in_flight, len(in_flight))
    assert order == [f"r{number}" for number in range(20)]
    assert not alive and not in_flight and schedule.requests == 20
    assert (most_alive, most_in_flight, most_tokens) == (concurrency, overlap, 16)


def test_decode_tokens_come_first_and_prompts_share_the_rest() -> None:
    works = [op.work for op in play(Schedule(requests((4, 3), (20, 1)), no_hits, chunk=8)) if isinstance(op, Dispatch)]
    assert works == [
        (("r0", 4), ("r1", 4)),
        (("r0", 1), ("r1", 7)),
        (("r0", 1), ("r1", 7)),
        (("r0", 1), ("r1", 2)),
        (("r1", 1),),
    ]


def test_a_refused_request_waits_at_the_head_until_another_has_left() -> None:
    schedule = Schedule(requests((4, 2), (9, 1), (2, 1)), no_hits)
    operations = list(play(schedule, Refusing(1)))
    names = [op.request for op in operations if isinstance(op, Allocate)]
    assert names == ["r0", "r1", "r1", "r2"]
    assert operations.index(Free("r0")) < [at for at, op in enumerate(operations) if isinstance(op, Allocate)][2]
    assert (schedule.requests, schedule.refusals, schedule.preemptions) == (3, 1, 0)


def test_a_refused_append_preempts_the_youngest_which_starts_again_with_its_tokens() -> None:
    schedule = Schedule(requests((4, 3), (3, 3), (2, 2)), no_hits, concurrency=2)
    # 0, 1: Allocate r0, r1; Dispatch, Complete; Append r0, r1; Dispatch, Complete; 8: Append r0 is refused.
    operations = list(play(schedule, Refusing(8)))
    assert operations[8:11] == [
        Append("r0", (2**31 - 3,)),
        Free("r1"),
        Append("r0", (2**31 - 3,)),
    ]
    again = [op for op in operations if isinstance(op, Allocate)][2]
    assert again.request == "r1" and list(again.tokens) == [512, 513, 514, 2**31 - 2]
    assert operations.index(Free("r0")) < operations.index(again)  # it waits until another has left
    assert (schedule.requests, schedule.refusals, schedule.preemptions) == (3, 1, 1)
    assert (schedule.prompt_tokens, schedule.output_tokens) == (9, 8)


def test_the_youngest_preempts_itself() -> None:
    operations = list(play(Schedule(requests((4, 3), (3, 3)), no_hits), Refusing(5)))
    assert operations[5:8] == [Append("r1", (2**31 - 2,)), Free("r1"), Dispatch(2, (("r0", 1),))]


def test_a_request_preempted_in_flight_is_waited_for() -> None:
    schedule = Schedule(requests((4, 3), (30, 1)), no_hits, chunk=8, overlap=2)
    # Two steps in flight carry parts of r1 when r0's first Append comes.
    operations = list(play(schedule, Refusing(5)))
    assert [type(op) for op in operations[:5]] == [Allocate, Allocate, Dispatch, Dispatch, Complete]
    assert operations[5:9] == [
        Append("r0", (2**31 - 1,)),
        Free("r1"),
        Complete(2),
        Append("r0", (2**31 - 1,)),
    ]
    assert schedule.requests == 2


def test_what_can_never_fit_is_dropped_and_counted() -> None:
    never = Outcome("refused", "NeverFits")
    schedule = Schedule(requests((9, 1), (4, 9), (5, 2)), no_hits)

    def judge(operation: Operation) -> Outcome:
        too_long = isinstance(operation, Allocate) and len(operation.tokens) > 8
        grows_too_long = isinstance(operation, Append) and operation.request == "r1"
        return never if too_long or grows_too_long else DONE

    operations = list(play(schedule, judge))
    assert Free("r0") not in operations and Free("r1") in operations and Free("r2") in operations
    assert (schedule.requests, schedule.dropped, schedule.refusals) == (1, 2, 2)


def test_a_target_that_refuses_what_must_fit_does_not_hang_the_run() -> None:
    with pytest.raises(Stalled, match="nothing is alive"):
        list(play(Schedule(requests((4, 1)), no_hits), lambda operation: NO_ROOM))
    with pytest.raises(Stalled, match="r0 is alone"):
        list(play(Schedule(requests((4, 1)), no_hits), Refusing(3)))
    with pytest.raises(Stalled, match="DuplicateRequest"):
        list(play(Schedule(requests((4, 1)), no_hits), lambda operation: Outcome("refused", "DuplicateRequest")))
    with pytest.raises(Stalled, match="cannot fail"):
        list(play(Schedule(requests((4, 1)), no_hits), Refusing(1)))


@pytest.mark.parametrize("name", ["max_output", "concurrency", "chunk", "overlap"])
def test_parameters_below_one_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        Schedule([], no_hits, **{name: 0})


# ---- whole runs ------------------------------------------------------------------------------------------------------


def test_the_generator_reproduces_the_committed_trace() -> None:
    text = make_trace.make()
    assert FILE.read_bytes() == text.encode()
    assert len(text) < 100_000
    made = read_trace(FILE)
    assert len(made) == 300
    assert all(request.input_length % 512 for request in made)
    before: dict[int, int | None] = {}
    for request in made:
        parent = None
        for id_ in request.hash_ids:
            assert before.setdefault(id_, parent) == parent, "equal ids are equal prefixes"
            parent = id_


@pytest.mark.parametrize(("overlap", "reuse"), [(1, "last_block"), (3, "last_token")])
def test_the_made_trace_with_every_property_on(overlap: int, reuse: str) -> None:
    made = read_trace(FILE)[: 300 if overlap == 1 else 120]
    calls: list[tuple[int, int, int]] = []
    report = run_trace(
        made, target(1024, reuse=reuse), overlap=overlap, progress=lambda *numbers: calls.append(numbers)
    )
    assert report.violation is None and report.failed_at is None and report.recent == ()
    assert (report.requests, report.dropped) == (len(made), 0)
    assert report.prompt_tokens == sum(request.input_length for request in made)
    assert report.output_tokens == sum(min(64, request.output_length) for request in made)
    assert 0 < report.hit_tokens < report.prompt_tokens
    assert report.evictions and report.refusals and report.preemptions
    assert report.operations_per_second == report.operations / report.seconds
    assert calls[-1] == (len(made), len(made), report.operations) and calls == sorted(calls)

    bare = run_trace(made, target(1024, reuse=reuse), overlap=overlap, checks=False)
    assert replace(bare, seconds=report.seconds) == report


@pytest.mark.parametrize("block_size", [16, 512, 100])
def test_hit_tokens_without_eviction_are_the_longest_common_prefixes(block_size: int) -> None:
    """One request at a time in a pool that never evicts: counted here from the tokens alone."""
    made = read_trace(FILE)[:80]
    known: set[bytes] = set()
    expected = 0
    for request in made:
        tokens = expand(request.hash_ids, request.input_length)
        limit = (len(tokens) - 1) // block_size  # the last block is always computed
        prefixes = [tokens[: count * block_size].tobytes() for count in range(1, len(tokens) // block_size + 1)]
        hits = 0
        while hits < limit and prefixes[hits] in known:
            hits += 1
        expected += hits * block_size
        known.update(prefixes)
    report = run_trace(made, target(200_000 // block_size + 500, block_size), concurrency=1, max_output=2)
    assert report.violation is None and report.evictions == 0
    assert report.hit_tokens == expected > 0
    assert run_trace(made, target(13_000, block_size), concurrency=1, max_output=9, checks=False).hit_tokens == expected


def test_two_runs_are_equal_operation_by_operation() -> None:
    made = read_trace(FILE)
    first, second = (
        run_trace(made, target(600), limit=60, overlap=2, record_upto=10**9, checks=checks) for checks in (True, False)
    )
    assert first.preemptions and first.recorded[: first.operations] == second.recorded
    assert run_trace(made, target(600), limit=60, overlap=2, record_upto=99).recorded == second.recorded[:100]


def test_outside_and_without_caching() -> None:
    made = read_trace(FILE)
    report = run_trace(made, target(1024, caching=False), outside=True, limit=40)
    assert (report.violation, report.requests, report.hit_tokens, report.evictions) == (None, 40, 0, 0)


def test_a_violation_is_reported_with_its_operation_and_can_be_recorded() -> None:
    made = read_trace(FILE)

    def faulty() -> Any:
        core: Any = target(1024)
        allocate = core.allocate

        def forgetful(request: str, *values: Any) -> int:
            hit: int = allocate(request, *values)
            if request == "r25":
                core.manager.sequence(request).table.reverse()
            return hit

        core.allocate = forgetful
        return core

    report = run_trace(made, faulty())
    assert report.violation is not None and report.failed_at == report.operations
    assert len(report.recent) == RECENT and report.recorded == ()
    failing = report.recent[-1]
    assert isinstance(failing, Allocate) and failing.request == "r25"

    again = run_trace(made, faulty(), record_upto=report.failed_at)
    assert str(again.violation) == str(report.violation) and again.failed_at == report.failed_at
    assert len(again.recorded) == report.failed_at + 1 and again.recorded[-RECENT:] == report.recent


def test_a_violation_in_the_drain_phase() -> None:
    core: Any = target(64)
    allocate = core.allocate

    def full(request: str, *values: Any) -> int:
        if request == "drain-warm":
            raise RuntimeError("no")
        hit: int = allocate(request, *values)
        return hit

    core.allocate = full
    report = run_trace(requests((40, 2), (50, 3)), core)
    assert report.violation is not None and report.violation.id == "CRASH"
    # All of drain-cold's operations come before.
    assert report.failed_at == report.operations + 4
    assert report.recent[-1].op == "allocate" and report.requests == 2
    assert run_trace([], target(4)).violation is None


def test_a_target_alone_refuses_operations_that_no_schedule_has() -> None:
    unknown: Any = Lookup((1, 2))
    with pytest.raises(AssertionError):
        Bare(target(4)).apply(unknown)
