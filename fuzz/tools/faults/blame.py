"""A target answers wrongly or cannot be made: toy adapters with one mistake each."""

from __future__ import annotations

import json
from importlib.util import find_spec
from textwrap import indent

from .fault import ROOT, Came, Cannot, Fault, Place, Said, Wrong, fault

__all__: list[str] = []

_RUN = ("--engine", "walk", "--kernels", "none", "--budget", "3s", "--seed", "1")


def _toy(place: Place, code: str) -> str:
    """The toy of the documents, with a mistake: `code` is the body of a class that derives from its adapter."""
    toy = (ROOT / "fuzz" / "example" / "toy.py").read_text(encoding="utf-8")
    bug = "  # BUG: whatever the index says of this block stays there\n"
    cure = "\n        self.index = {prefix: kept for prefix, kept in self.index.items() if kept != block}\n"
    place.write("toy.py", toy.replace(bug, cure))
    head = "from properties.target import Capability\nfrom toy import ToyTarget\n\nclass Wrong(ToyTarget):\n"
    place.write("mistake.py", f"{head}{indent(code, '    ')}\n\nmake = Wrong\n")
    return "mistake:make"


def _two_lines(said: Said) -> str:
    """What the user reads: the message, and the command that shows it again."""
    lines = [line.strip() for line in said.all.splitlines()]
    lines = [line for line in lines if " by walk after " in line or line.startswith(("CRASH ", "error:"))]
    if not lines:
        raise Wrong(f"wrong blame: neither a finding nor an error: {said.last}")
    return lines[0]


def _mistake(name: str, what: str, code: str, *texts: str, status: int = 1, quick: bool = False) -> Fault:
    """status: 1 is a finding with its operations, 2 is said before anything runs."""

    def attempt(place: Place) -> Came:
        said = place.fuzz("run", "--target", _toy(place, code), *_RUN, "--hang", "2s")
        said.must(status, *texts)
        if status == 1 and not place.findings():
            raise Wrong("lost: no finding is kept")
        return said.came(_two_lines(said))

    return fault(name, what, quick=quick)(attempt)


_CALL = "def {0}(self, *values):\n    {1}"


def _method(method: str, body: str) -> str:
    return _CALL.format(method, body)


no_return = _mistake(
    "no-return", "allocate forgets to return", _method("allocate", "super().allocate(*values)"),
    "allocate returned None; expected an int", quick=True,
)  # fmt: skip
text = _mistake(
    "text-hits", "allocate returns text", _method("allocate", "return str(super().allocate(*values))"),
    "allocate returned str '0'",
)  # fmt: skip
real = _mistake(
    "float-hits", "allocate returns a float", _method("allocate", "return super().allocate(*values) / 1"),
    "allocate returned float 0.0",
)  # fmt: skip
nan = _mistake(
    "nan-hits", "allocate returns NaN", _method("allocate", "super().allocate(*values); return float('nan')"),
    "allocate returned float nan",
)  # fmt: skip
true = _mistake(
    "bool-hits", "allocate returns a bool", _method("allocate", "return bool(super().allocate(*values))"),
    "allocate returned False",
)  # fmt: skip
no_table = _mistake(
    "no-table", "table forgets to return", _method("table", "super().table(*values)"), "returned None; expected a list"
)
tuple_table = _mistake(
    "tuple-table", "table returns a tuple", _method("table", "return tuple(super().table(*values))"),
    "returned tuple", "expected a list of ints",
)  # fmt: skip
none_table = _mistake(
    "none-in-table", "the table has None in it", _method("table", "return [*super().table(*values), None]")
)
own_table = _mistake(
    "own-list", "table returns the list that the core goes on with",
    "def table(self, request):\n    kept = self.__dict__.setdefault('kept', {})\n    fresh = super().table(request)\n"
    "    kept.setdefault(request, []).clear()\n    kept[request].extend(fresh)\n    return kept[request]",
    "will not change later",
)  # fmt: skip
off_by_one = _mistake(
    "off-by-one-table", "the table lacks its last block", _method("table", "return super().table(*values)[:-1]"),
    "blocks",
)  # fmt: skip
raises = _mistake(
    "exception", "append raises KeyError", _method("append", "raise KeyError('no such thing')"),
    "append ended in KeyError", "mistake.py:", quick=True,
)  # fmt: skip
hangs = _mistake("never-returns", "allocate never returns", _method("allocate", "while True: pass"), "hung")
exits = _mistake(
    "sys-exit-0", "free calls sys.exit(0)", _method("free", "raise SystemExit(0)"), "free ended in SystemExit"
)
interrupts = _mistake(
    "keyboard-interrupt", "free raises KeyboardInterrupt", _method("free", "raise KeyboardInterrupt"),
    "free ended in KeyboardInterrupt",
)  # fmt: skip
recursion = _mistake("recursion", "free calls itself", _method("free", "self.free(*values)"), "RecursionError")
no_view = _mistake(
    "no-view", "dispatch forgets to return", _method("dispatch", "super().dispatch(*values)"),
    "dispatch returned None; expected a StepView",
)  # fmt: skip
handle_alone = _mistake(
    "handle-alone", "dispatch returns its handle", _method("dispatch", "return super().dispatch(*values).handle"),
    "expected a StepView",
)  # fmt: skip
bad_copies = _mistake(
    "bad-copies", "a step's copies are blocks, not pairs",
    "def dispatch(self, work):\n    view = super().dispatch(work)\n    view.copies = [0]\n    return view",
)  # fmt: skip
no_counts = _mistake(
    "two-counts", "counts returns two numbers", 'capabilities = ToyTarget.capabilities | {Capability.INSPECT}\n'
    "def counts(self):\n    return (1, 2)\ndef states(self, blocks):\n"
    "    return [(self.core.references[b], b in self.core.index.values()) for b in blocks]\n"
    "def inspect(self):\n    return None", "counts returned tuple (1, 2); expected a tuple of three ints",
)  # fmt: skip
foreign = _mistake(
    "foreign-exception", "a full pool is refused with the core's own exception",
    "refusals = ()",  "ended in",
)  # fmt: skip
kind_raises = _mistake("kind-raises", "kind raises", _method("kind", "raise AttributeError('kind')"), "ended in")
kind_none = _mistake(
    "kind-none", "kind forgets to return", _method("kind", "pass"), "kind returned None; expected a str"
)
no_method = _mistake(
    "claimed", "a capability is claimed and its method not written",
    "capabilities = ToyTarget.capabilities | {Capability.TRUNCATE}", "truncate", status=2,
)  # fmt: skip
no_policy = _mistake(
    "no-policy",
    "there is no policy",
    "def __init__(self, configuration): self.core = None",
    "policy",
    status=2,
    quick=True,
)
raises_at_start = _mistake(
    "factory-raises", "the constructor raises",
    "def __init__(self, configuration):\n    raise RuntimeError('needs CUDA')", "needs CUDA", "mistake:make", status=2,
)  # fmt: skip


def _toy_text(place: Place, text: str) -> str:
    place.write("mistake.py", text)
    return "mistake:make"


@fault("not-a-target", "--target names a function that makes no target", quick=True)
def not_a_target(place: Place) -> Came:
    said = place.fuzz("run", "--target", "json:dumps", *_RUN).must(2, "json:dumps")
    return said.came(_two_lines(said))


@fault("factory-returns-none", "the factory forgets to return")
def returns_none(place: Place) -> Came:
    said = place.fuzz("run", "--target", _toy_text(place, "def make(configuration): pass"), *_RUN).must(
        2, "mistake:make"
    )
    return said.came(_two_lines(said))


@fault("syntax-error", "the adapter has a syntax error")
def syntax(place: Place) -> Came:
    said = place.fuzz("run", "--target", _toy_text(place, "def make(configuration:"), *_RUN).must(2, "mistake")
    return said.came(_two_lines(said))


@fault("import-error", "the adapter imports what is not installed")
def missing(place: Place) -> Came:
    said = place.fuzz("run", "--target", _toy_text(place, "import no_such_package"), *_RUN).must(2, "no_such_package")
    return said.came(_two_lines(said))


@fault("factory-raises-later", "the factory raises for blocks of one token")
def raises_later(place: Place) -> Came:
    text = """\
from properties.targets.kvcore import KvcoreTarget
def make(configuration):
    if configuration.block_size == 1:
        raise RuntimeError("blocks of one token")
    return KvcoreTarget(configuration)
"""
    said = place.fuzz("run", "--target", _toy_text(place, text), *_RUN).must(1, "CRASH", "blocks of one token")
    return said.came(_two_lines(said))


@fault("one-of-three", "one of three targets cannot be made")
def one_of_three(place: Place) -> Came:
    bad = _toy_text(place, "def make(configuration): raise RuntimeError('needs CUDA')")
    said = place.fuzz("run", "--target", f"kvcore,{bad},fuzz.zoo:NV-1", *_RUN, "--budget", "8s")
    said.must(1, "needs CUDA", "OWNERSHIP")
    return said.came("it is said, and the others run")


@fault("one-of-two", "one of two targets cannot be made, and the other is well")
def one_of_two(place: Place) -> Came:
    bad = _toy_text(place, "def make(configuration): raise RuntimeError('needs CUDA')")
    said = place.fuzz("run", "--target", f"kvcore,{bad}", *_RUN).must(3, "needs CUDA")
    if not place.summary()["operations"]:
        raise Wrong("lost: the other did not run")
    return said.came("it is said, and the other runs")


@fault("replay-raises", "a finding is replayed on a target that cannot be made")
def replay_raises(place: Place) -> Came:
    bad = _toy_text(place, "def make(configuration): raise RuntimeError('needs CUDA')")
    scenario = ROOT / "fuzz" / "scenarios" / "six_moments.json"
    return place.fuzz("replay", scenario, "--target", bad).must(2, "needs CUDA").came("said; nothing ran")


@fault("no-hypothesis", "Hypothesis is not installed")
def no_hypothesis(place: Place) -> Came:
    place.write("sitecustomize.py", "import sys; sys.modules['hypothesis'] = None")
    said = place.fuzz("run", "--engine", "hypothesis", "--budget", "2s").must(2, "hypothesis")
    return said.came("said before anything runs")


_ON_KERNELS = ("--engine", "walk", "--engine", "kernels", "--budget", "8s", "--seed", "1")
_COMPILES = {"TRITON_INTERPRET": "0"}
"""Whatever the caller's environment says: what Triton does by itself."""


def _takes_triton(place: Place, text: str, *flags: str) -> Said:
    """A run of the walk and of kernels beside it on kvcore, whose adapter does `text` first."""
    for package in ("torch", "triton"):
        if find_spec(package) is None:
            raise Cannot(f"{package} is not installed")
    return place.fuzz(
        "run", "--target", _toy_text(place, text), *_ON_KERNELS, *flags, timeout=180.0, environment=_COMPILES
    )


def _went_on(place: Place, said: Said) -> Came:
    """The walk ran, the kernels did not, and that is said."""
    said.must(0, "riton")
    summary = place.summary()
    if "walk" not in summary["engines"]:
        raise Wrong("lost: the walk did not run")
    if "no kernels" not in summary["properties"]["EQUIVALENCE"]:
        raise Wrong(f"false green: EQUIVALENCE is {summary['properties']['EQUIVALENCE']}")
    return said.came("it is said, and the run goes on without the kernels")


@fault("imports-triton", "the adapter imports Triton, which then compiles kernels and does not interpret them")
def imports_triton(place: Place) -> Came:
    return _went_on(place, _takes_triton(place, "import triton\nfrom properties.targets.kvcore import make\n"))


_STUB = "import sys, types\nsys.modules['triton'] = types.ModuleType('triton')\n"


@fault("stubs-triton", "the adapter puts an empty module in Triton's place")
def stubs_triton(place: Place) -> Came:
    return _went_on(place, _takes_triton(place, f"{_STUB}from properties.targets.kvcore import make\n"))


@fault("imports-triton-late", "the core imports Triton with its first request")
def imports_triton_late(place: Place) -> Came:
    text = """\
from properties.targets.kvcore import KvcoreTarget
class Late(KvcoreTarget):
    def allocate(self, *values):
        import triton
        return super().allocate(*values)
make = Late
"""
    return _went_on(place, _takes_triton(place, text))


@fault("kernels-asked-for", "the adapter imports Triton, and --kernels asks for kernels in the interpreter")
def kernels_asked_for(place: Place) -> Came:
    text = "import triton\nfrom properties.targets.kvcore import make\n"
    said = _takes_triton(place, text, "--kernels", "kvcore").must(0)
    if "kernels" not in place.summary()["engines"]:
        raise Wrong("false green: no kernels were run")
    return said.came("Triton interprets from the start, and kernels are run beside the target")


@fault("kernels-in-vain", "the adapter puts an empty module in Triton's place; --kernels asks for kernels", quick=True)
def kernels_in_vain(place: Place) -> Came:
    text = f"{_STUB}from properties.targets.kvcore import make\n"
    said = _takes_triton(place, text, "--kernels", "kvcore").must(2, "mistake:make", "triton")
    return said.came(_two_lines(said))


@fault("replay-on-kernels", "a finding on kernels is replayed on a target whose adapter imports Triton")
def replay_on_kernels(place: Place) -> Came:
    bad = _toy_text(place, "import triton\nfrom properties.targets.kvcore import make\n")
    data = json.loads((ROOT / "fuzz" / "scenarios" / "six_moments.json").read_text(encoding="utf-8"))
    data["judging"] = {"outside": False, "exact": True, "kernels": "kvcore"}
    file = place.write("kernels.json", json.dumps(data))
    return (
        place.fuzz("replay", file, "--target", bad, environment=_COMPILES)
        .must(0)
        .came("replayed, with kernels in the interpreter")
    )
