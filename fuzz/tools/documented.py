"""The commands of the documents: which there are, and how each is tried.

`commands` collects them from fenced blocks and spans of code of README.md and docs/, and from the jobs in
docs/examples. `trial_of` says of each how it is tried: the command with its times cut short, and the statuses that are
right; or why it is not run as it stands, and what is looked at instead. There is no third way, so that no command is
left out without a word.

Imports: nothing of the project.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

__all__ = ["JOBS", "PAGES", "ROOT", "Command", "Trial", "code_of", "commands", "trial_of"]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
JOBS = [path for path in sorted((ROOT / "docs" / "examples").iterdir()) if path.suffix in (".yml", ".yaml")]

_BEGIN = re.compile(
    r"(?:^|(?<=[\s/]))(python3? (?:-P )?-m (?:fuzz|kvcore|properties)\S*.*|kvcore-fuzz.*|pytest (?:-|regressions).*|"
    r"(?:(?<=^)|(?<=^\$ )|(?<=&& )|(?<=run: ))make [a-z][\w.-]*(?=$|[\s`;]).*|git bisect run .*|pip install .*)"
)


_WORDS = {
    "TARGET": "kvcore",
    "BUDGET": "1s",
    "SEED": "7",
    "K": "my_package.kernels:make",
    "...": "kvcore",
    "N": "2",
    "NAME": "commit",
}
"""What stands for something in a page, and what it stands for here."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command. page: the file that has it. words: as a shell splits it."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.words)

    @property
    def fuzz(self) -> tuple[str, ...] | None:
        """Its arguments if it is ours, `python -m fuzz` or `kvcore-fuzz`; else None."""
        if self.words[0] == "kvcore-fuzz":
            return self.words[1:]
        return self.words[self.words.index("fuzz") + 1 :] if self.words[-1:] and "fuzz" in self.words[:4] else None


def code_of(page: Path) -> str:
    """What a page shows as code: fenced blocks, then spans, one a line. Any other file is code as a whole."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".md":
        return text
    fence = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`]+)`", fence.sub("", text))
    return "\n".join([*fence.findall(text), *(" ".join(span.split()) for span in spans)])


_SHORT = re.compile(
    r"^(?:accept|attention|audit|compare|example|explore|gpu|promote|replay|report|run|tidy|trace) --[a-z]"
)
"""A span that is one of our commands without `python -m fuzz`, as prose has them."""


def commands_in(text: str, page: str) -> Iterator[Command]:
    """The commands of some code, each up to the shell's next word of its own."""
    text = re.sub(r"\$\{[^}]*\}", "", text.replace("\\\n", " "))
    for line in text.splitlines():
        line = f"python -m fuzz {line}" if _SHORT.match(line) else line
        if line.lstrip().startswith("#") or (found := _BEGIN.search(line)) is None:
            continue
        part = re.split(r"`|\s#|\s*[|;)]|\s&&|\s\d?[<>]|,\s", found[1])[0]
        lexed = shlex.shlex(part.strip(), posix=True)
        lexed.whitespace_split = True
        lexed.commenters = ""
        words = tuple(_WORDS.get(word, word) for word in lexed)
        if words[:3] == ("git", "bisect", "run"):
            words = words[3:]
        yield Command(page, (re.sub(r"^.*/python$|^python3$", "python", words[0]), *words[1:]))


def commands() -> list[Command]:
    """All, each once, in the order of the pages."""
    found: dict[tuple[str, ...], Command] = {}
    for page in (*PAGES, *JOBS):
        for command in commands_in(code_of(page), page.relative_to(ROOT).as_posix()):
            found.setdefault(command.words, command)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Trial:
    """How a command is tried. words: what is run; none if it is not. statuses: those that are right. instead: why it is
    not run as it stands, and what is looked at; "" if it is. kind: "installed", "help" (a tool of the checkout: its
    options), "make" (the target is there), "extras" (of pip install)."""

    kind: str
    words: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (0,)
    instead: str = ""


_FOREIGN = ("nano_vllm", "vllm", "sglang")
"""Targets that need somebody else's core, which is in no environment of ours but `make cores`."""

_CLEAN, _FOUND, _USAGE, _LOST, _NOTHING, _KNOWN = 0, 1, 2, 3, 4, 5


def trial_of(command: Command) -> Trial:
    """How `command` is tried. Raises ValueError for one of a kind that nobody has thought of."""
    words = command.words
    if words[0] == "make":
        return Trial("make", words, instead="it sets up an environment of its own: the target has to be there")
    if words[:2] == ("pip", "install"):
        return Trial("extras", words, instead="it needs a network: the extras have to be there")
    if words[0] == "pytest":
        cut = ["commit" if word == "nightly" else word for word in words]
        return Trial("installed", tuple(cut))
    arguments = command.fuzz
    if arguments is None:
        if words[:3] == ("python", "-m", "fuzz.tools.screenshots"):
            return Trial("module", words, instead="it needs Chromium, and has no options: the module has to be there")
        if words[:2] == ("python", "-m") and words[2].startswith("fuzz.tools"):
            return Trial("help", words, instead="of a checkout, and long: its --help has to know the options")
        raise ValueError(f"{command.page}: nobody has said how {command} is tried; say it in {__name__}")
    if words[0] == "kvcore-fuzz":
        return Trial("installed", words, (_CLEAN, _USAGE) if not arguments else (_CLEAN,))
    return Trial("installed", ("python", "-m", "fuzz", *_shortened(arguments)), _statuses(arguments))


def _shortened(arguments: tuple[str, ...]) -> list[str]:
    """The same, for a second or two: budgets, cases, states, workers."""
    if not arguments:
        return []
    name = arguments[0]
    words = [*arguments]
    if name == "attention" and "FILE" in words:
        words[words.index("FILE")] = "docs/counterexamples/vllm-chunks.json"
    short = {"--budget": "2s", "--cases": "2", "--workers": "2", "--seeds": "1", "--devices": "0"}
    for place, word in enumerate(words[:-1]):
        if word in short:
            words[place + 1] = short[word]
        elif word == "--max-findings":
            words[place + 1] = "1"
        elif words[place + 1].startswith(("~/", "$HOME/", "/nights")):
            words[place + 1] = words[place + 1].rpartition("/")[2]
    added = {
        "run": [] if "--budget" in words else ["--budget", "2s"],
        "attention": [] if {"--cases", "--case"} & set(words) else ["--cases", "2"],
        "compiled": ["--budget", "30s", "--shrink", "0"],
        "explore": ["--max-states", "200"],
        "compare": [] if "--budget" in words else ["--budget", "2s"],
        "audit": [] if {"--bug", "--list"} & set(words) else ["--limit", "20", "--class", "rollback"],
        "gpu": [] if "--minutes" in words else ["--minutes", "0.1"],
        "trace": ["--limit", "3"],
    }.get(name, [])
    if "--kernels" in words and name == "audit":
        added = ["--bug", "KK-110", "--cases", "1"]
    return [*words, *added]


def _statuses(arguments: tuple[str, ...]) -> tuple[int, ...]:
    """The right ones. A run of two seconds on a correct core is clean; on one with a bug it finds it or does not."""
    name = arguments[0] if arguments else ""
    text = " ".join(arguments)
    if not arguments:
        return (_CLEAN, _USAGE)  # the help
    lacks = [core for core in _FOREIGN if core in text and find_spec(core) is None]
    if lacks and name in ("run", "attention", "replay"):
        return (_USAGE,)
    if lacks and name == "compare":
        return (_NOTHING,)  # the others are compared, and of these it is said that they did not run
    if "ray" in arguments or "--devices" in arguments:
        # No cluster answers at head:6379, and there may be no Ray and no device here.
        return (_CLEAN, _FOUND, _USAGE, _LOST)
    if name == "gpu":
        return (_CLEAN, _NOTHING)
    if name == "compiled":
        return (_CLEAN, _FOUND)  # prompts on sm_90: docs/kernels.md
    if "fuzz.zoo" in text or "toy" in text or name in ("replay", "audit", "compare", "explore"):
        return (_CLEAN, _FOUND, _KNOWN, *((125,) if "--bisect" in arguments else ()))
    return (_CLEAN, _KNOWN, *((_FOUND,) if "--resume" in arguments or (name == "run" and "night" in text) else ()))
