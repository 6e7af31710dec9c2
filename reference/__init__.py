"""The model: what a correct paged KV cache does, small, obvious and slow. Read it to learn what is right.

`judge.py` follows a core and judges it; `slots.py` remembers what every slot holds; `histories.py` gives whole
histories numbers; `predictor.py` knows the order of blocks; `verdicts.py` lists what can be wrong; `policy.py` what a
core may choose. `attention.py` is what a kernel must return.

Imports: nothing.
"""

from .attention import attention
from .histories import Histories
from .judge import Judge, Line, Passage
from .policy import Policy
from .predictor import Predictor
from .slots import Slots
from .verdicts import *  # noqa: F403
from .verdicts import __all__ as _verdicts

__all__ = ["Histories", "Judge", "Line", "Passage", "Policy", "Predictor", "Slots", "attention", *_verdicts]
