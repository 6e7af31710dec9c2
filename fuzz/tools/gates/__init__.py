"""Static gates: what the compiler makes of every launch that kvcore does, judged without a GPU.

    python -m fuzz.tools.gates --check      # every configuration, against the committed table

The real calls are made, on small CPU tensors, with each kernel replaced by a recorder; Triton's own JIT then
specialises and compiles what was recorded, for a GPU that is not there. So the launches that are judged are the
launches that are made: signature, alignment hints, constants and options are written down nowhere else.

A *report* holds what was read of one compiled kernel (registers, spills, copies, matrix instructions, ...). A *gate* is
a function of one report that says what is wrong with it, or nothing. The reports are committed as
docs/generated/gates.json, so that a change which costs more than 5 % is seen in review.

    configurations   what is compiled
    launches         recorded calls, and compiling them
    machine_code     reads SASS
    ir               reads Triton's IR
    examining        launch -> report
    reports          the report, and the file of all
    judging          the gates, and the drift
    tables           docs/generated/gates.md
    command          the options

No timing is taken here and no GPU is needed: every number is the compiler's.

Imports: kvcore, rich, torch, triton, typer.
"""

from .command import app
from .configurations import CONFIGURATIONS, Configuration
from .examining import examine
from .ir import read_ttir
from .judging import GATES, drifts, failures
from .launches import Launch, compile_launch, recorded
from .machine_code import read_sass
from .reports import Report, from_json, to_json, versions
from .tables import markdown

__all__ = [
    "CONFIGURATIONS",
    "GATES",
    "Configuration",
    "Launch",
    "Report",
    "app",
    "compile_launch",
    "drifts",
    "examine",
    "failures",
    "from_json",
    "markdown",
    "read_sass",
    "read_ttir",
    "recorded",
    "to_json",
    "versions",
]
