"""The model: what a correct paged KV cache does, small, obvious and slow. Read it to learn what is right.

`judge.py` follows a core and judges it, and says which file answers which question. `policy.py` says what a core may
choose, `verdicts.py` what can be wrong, `refusals.py` how a core says no. `slots.py` remembers what every slot holds,
`histories.py` gives whole histories numbers, `predictor.py` knows the order of blocks. `attention.py` is what a kernel
must return.

A model that shared code with a core would share its faults.

Imports: nothing.
"""

from . import events, refusals
from .attention import attention
from .batch import padding_faults
from .counted import Counted
from .due import Due
from .histories import Histories
from .judge import Judge
from .policy import Policy, believed
from .predictor import Predictor
from .sequence import GroupTable, PendingCopy, Sequence, Step
from .slots import Slots
from .verdicts import *  # noqa: F403
from .verdicts import __all__ as _verdicts

__all__ = [
    "Counted",
    "Due",
    "GroupTable",
    "Histories",
    "Judge",
    "PendingCopy",
    "Policy",
    "Predictor",
    "Sequence",
    "Slots",
    "Step",
    "attention",
    "events",
    "padding_faults",
    "refusals",
    *_verdicts,
    "believed",
]
