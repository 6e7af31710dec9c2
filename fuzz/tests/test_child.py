"""What a target does to its process happens to nobody else."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from fuzz.campaign.threads import Threads, left
from fuzz.runs.child import Ended, ask, each
from fuzz.runs.files import free, put, tried
from fuzz.runs.guard import watched
from fuzz.runs.output import Output, print_to


def act(what: str) -> str:
    """What a child is asked to do."""
    if what == "exit":
        os._exit(0)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "sys.exit":
        sys.exit(0)
    if what == "raise":
        raise KeyError(what)
    if what == "hang":
        time.sleep(1e6)
    if what == "print":
        print("x" * 1000)
    return what


def test_one_answer_a_value_whatever_the_others_do_to_their_process() -> None:
    answers = [
        str(answer) for answer in each(act, ["a", "exit", "b", "kill", "raise", "sys.exit", "print"], seconds=20)
    ]
    assert answers == [
        "a",
        "ended by itself with status 0",
        "b",
        "was killed by SIGKILL",
        "raised KeyError: 'raise'",
        "raised SystemExit: 0",
        "print",
    ]


def test_what_hangs_is_ended() -> None:
    with pytest.raises(Ended, match="hung"):
        ask(act, "hang", seconds=3)


def test_a_guard_says_how_its_child_ended_and_runs_it_once_more(tmp_path: Path) -> None:
    said: list[str] = []
    ending = watched([sys.executable, "-c", "import os; os._exit(0)"], record=False, say=said.append)
    assert ending.status is None
    assert ending.again == "ended by itself with status 0"
    assert any("once more" in line for line in said)


def test_a_guard_ends_what_says_nothing() -> None:
    said: list[str] = []
    command = [sys.executable, "-c", "import time; time.sleep(1e6)"]
    ending = watched(command, record=True, say=said.append, hang=0.5)
    assert ending.how.startswith("hung")


def test_what_a_process_prints_without_end_is_kept_short(tmp_path: Path) -> None:
    output = Output(tmp_path / "out")
    child = os.fork()
    if not child:
        print_to(output.path)
        for number in range(300):
            os.write(1, b"%04d " % number * 10_000)
            time.sleep(0.001)
        os._exit(0)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        output.look(1 << 20)
        assert not output.path.exists() or output.path.stat().st_size < 8 << 20
        time.sleep(0.001)
    words = output.last_words()
    assert words.endswith("0299 ") and "bytes; the last are these" in words
    assert output.path.stat().st_size == 0


def test_threads_are_left_behind_if_there_are_more_after_every_unit() -> None:
    end = threading.Event()
    threads = Threads()

    def start() -> None:
        threading.Thread(target=end.wait, daemon=True).start()

    start()  # a core may start a few of its own
    assert not any(threads.look() for _ in range(20))
    seen = []
    for _ in range(10):
        start()
        seen.append(threads.look())
    assert seen[-1] and not any(seen[:6])
    before = threading.active_count() - 11
    end.set()
    assert left(before) == 0, "they have ended"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        put(tmp_path / "taken", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"], "nothing partial is left"
    put(tmp_path / "a.json", "\udc80")
    assert free(tmp_path / "a.json").name == "a-2.json"
    with pytest.raises(OSError):
        tried(tmp_path / "a.json")
