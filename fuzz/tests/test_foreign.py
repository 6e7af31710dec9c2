"""A text of somebody else's shows as it is, and does nothing: in a terminal, in Markdown, in a log, in a test."""

from __future__ import annotations

import ast
import re
from io import StringIO
from pathlib import Path

import pytest

from fuzz.cli.common import Terminal
from fuzz.findings.as_test import pytest_text
from fuzz.runs.foreign import code, in_markdown, printed, visible
from fuzz.runs.trust import distrusted, options_of, replay_command, shipped
from fuzz.runs.values import Counterexample, Judging
from fuzz.show.timeline import describe
from properties.operations import Allocate, Configuration

NASTY = '\x1b]0;x\x07\x9b2J\u202e<script>|**x**\r\n::error::[a](b)`"""\nopen(\'x\')\\'


def test_control_characters_are_written_out_and_lines_are_kept() -> None:
    assert visible("a\x1b[2J\x07\x9b\x7f\u202e\n\tb") == "a\\x1b[2J\\x07\\x9b\\x7f\\u202e\n\tb"
    assert visible("a plain text, ünd größer") == "a plain text, ünd größer"


def test_a_terminal_shows_its_own_colours_and_nobody_elses() -> None:
    file = StringIO()
    terminal = Terminal(file=file, force_terminal=True, color_system="standard", width=80)
    terminal.print("[red]mine[/] \x1b[2Jtheirs")
    assert "\x1b[31mmine" in file.getvalue() and "\x1b[2J" not in file.getvalue()


def test_no_line_is_a_command_of_githubs_log(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a::b\n  ::error::c ##[error]d"
    assert printed(text) == text
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert printed(text) == "a::b\n  : :error::c # #[error]d"


def test_markdown_has_no_markup_of_a_text() -> None:
    shown = in_markdown(NASTY)
    assert "\n" not in shown and "<" not in shown and "**" not in shown and "\x1b" not in shown
    assert in_markdown("block 3 of nano_vllm, r0 at 5") == "block 3 of nano_vllm, r0 at 5"
    assert in_markdown("a|b _c_") == r"a\|b \_c\_"


@pytest.mark.parametrize("text", ["plain", "a`b", "``", "`", "a|b", "a\n# b"])
def test_code_in_markdown_is_not_ended_by_what_is_in_it(text: str) -> None:
    shown = code(text)
    fence = shown[: len(shown) - len(shown.lstrip("`"))]
    assert shown.endswith(fence) and "\n" not in shown
    assert fence not in re.findall("`+", shown[len(fence) : -len(fence)])


def test_an_operation_is_one_line() -> None:
    assert "\n" not in describe(Allocate(NASTY, (1,))) and "\x1b" not in describe(Allocate(NASTY, (1,)))


def test_a_message_does_not_end_the_text_of_a_test() -> None:
    found = Counterexample(
        Configuration(), (Allocate(NASTY, (1,)),), property_id="OWNERSHIP", message=NASTY, engine=NASTY, seed=NASTY
    )
    module = ast.parse(pytest_text(found, "one"))
    kinds = [type(node) for node in module.body]
    assert kinds == [ast.Expr, *[ast.ImportFrom] * 3, *[ast.Assign] * 3, ast.FunctionDef]


@pytest.mark.parametrize(
    ("name", "yes"),
    [
        ("kvcore", True),
        ("fuzz.zoo:NV-1", True),
        ("fuzz.tests.broken:make", True),
        ("properties.targets.vllm:weak_hash", True),
        ("os:system", False),
        ("fuzz.zoology:make", False),
        ("fuzz:make", False),
        ("mycore.testing:make", False),
    ],
)
def test_what_comes_with_this_tool_is_known_by_its_name(name: str, yes: bool) -> None:
    assert shipped(name) is yes
    found = Counterexample(Configuration(), (), target=name)
    assert (distrusted(found) == "") is yes
    assert distrusted(found, [name]) == ""
    assert (options_of(found) == "") is yes


def test_kernels_and_the_target_of_another_process_are_asked_for_as_well() -> None:
    kernels = Counterexample(Configuration(), (), judging=Judging(kernels="my:own"))
    assert "--kernels my:own" in distrusted(kernels, ["my:own"]) and not distrusted(kernels, (), ["my:own"])
    keys = Counterexample(Configuration(), (), judging=Judging(keys="my:own"))
    assert "--target my:own" in distrusted(keys) and not distrusted(keys, ["my:own"])


def test_a_command_that_is_printed_can_be_typed() -> None:
    found = Counterexample(Configuration(), (), target="a:b; rm -rf x")
    assert replay_command(Path("a b.json"), found) == "python -m fuzz replay 'a b.json' --target 'a:b; rm -rf x'"
