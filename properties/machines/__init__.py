"""Hypothesis as a producer of operations: the properties as a state machine, and the gate for every commit.

`properties.moves` turns a few small integers into one operation in the present state, `strategies.py` draws them and
the configurations, `allocator.py` is the machine, `profiles.py` says how long it runs. The machine adds nothing to what
is checked: it calls `Session.apply`, as every other producer does, and keeps the list of operations, which is what a
finding is. Hypothesis draws; nothing here is random otherwise.

Imports: properties, reference, hypothesis.
"""

from __future__ import annotations

from .allocator import AllocatorMachine, MachineReport, Record, machine_for, run_machine
from .profiles import PROFILES, UnknownProfile, load, seed_for, settings_for

__all__ = [
    "PROFILES",
    "AllocatorMachine",
    "MachineReport",
    "Record",
    "UnknownProfile",
    "load",
    "machine_for",
    "run_machine",
    "seed_for",
    "settings_for",
]
