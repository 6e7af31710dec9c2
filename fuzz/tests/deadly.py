"""Targets that take their process with them, for tests of the supervisor: `--target fuzz.tests.deadly:killed`.

Each behaves until a pool of one certain size is reset after something was allocated, which a walk does about once in a
hundred episodes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from fuzz.zoo import find
from fuzz.zoo.planting import planted
from properties.operations import Configuration
from properties.target import Target
from properties.targets.kvcore import KvcoreTarget

_SIZES = (5, 4)
"""Blocks, and tokens of a block, of the pool that is deadly."""


def _deadly(die: Callable[[], None]) -> Callable[[Configuration], Target]:
    class Deadly(KvcoreTarget):
        used = False

        def allocate(self, *arguments: Any) -> Any:
            self.used = True
            return super().allocate(*arguments)

        def reset(self) -> None:
            if self.used and (self.policy.num_blocks, self.policy.block_size) == _SIZES:
                die()
            super().reset()

    return Deadly


def _hoard() -> None:
    kept = []
    while True:
        kept.append(bytearray(1 << 24))


killed = _deadly(lambda: os.kill(os.getpid(), signal.SIGKILL))
hangs = _deadly(lambda: time.sleep(3600))
hoards = _deadly(_hoard)


def outgrows(configuration: Configuration) -> Target:
    """Memory runs out where no target can be blamed: before there is one."""
    if (configuration.num_blocks, configuration.block_size) == _SIZES:
        _hoard()
    return KvcoreTarget(configuration)


def unloadable(configuration: Configuration) -> Target:
    """A process dies of making the tenth; the one that asks what it can do makes fewer."""
    global _made
    _made += 1
    if _made == 10:
        os._exit(9)
    return KvcoreTarget(configuration)


def on_a_device(configuration: Configuration) -> Target:
    """kvcore that publishes at dispatch, where its process was given a device: a stand-in for kernels that only fail
    there."""
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        return find("NV-7").factory()(configuration)
    return KvcoreTarget(configuration)


_made = 0


def flaky(configuration: Configuration) -> Target:
    """kvcore that publishes at dispatch, every other time."""
    global _made
    _made += 1
    return find("NV-7").factory()(configuration) if _made % 2 else KvcoreTarget(configuration)


def two(configuration: Configuration) -> Target:
    """kvcore with two bugs."""
    return planted((*find("NV-1").changes, *find("KC-11").changes))(configuration)
