"""How good the generators are, after Hypothesis's own tests of the kind: hard states are reached, and soon.

What is stated is three times what was measured (the slowest of eight seeds), so that a change of the generator that
makes a state ten times rarer fails here, and one that reshuffles it does not. How well findings are shrunk is in
`test_zoo.py`.
"""

from __future__ import annotations

import pytest

from fuzz.engines import Tally, hypothesis, swarm
from fuzz.run import Judging
from properties.ledger import EVENTS
from properties.targets import load

WALK = {
