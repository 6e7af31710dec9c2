"""Kernels with a fault, as a target for the command line: decode over several leaves is off by one bit when split."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from properties.attention.kernels import How, Step
from properties.attention.tests.support import Plain


def split_is_off(out: torch.Tensor, step: Step, how: How, cache: Any) -> None:
    if how.schedule == "split" and len(out) and any(context > how.leaf for context in step.contexts):
        out.view(torch.int32)[-1, 0, 0] += 1


def make() -> Plain:
    return Plain(split_is_off)


def honest() -> Plain:
    return Plain()


def blind() -> Plain:
    return Plain(lambda out, *_: out.nan_to_num_(0.0))


def deadly() -> Plain:
    """Ends its process where a sequence has two query rows or more."""
    return Plain(where_two_rows(lambda: os._exit(0)))


def leaving() -> Plain:
    return Plain(where_two_rows(lambda: exit(0)))


def unmade() -> Plain:
    raise RuntimeError("no device here")


def where_two_rows(act: Callable[[], object]) -> Callable[..., None]:
    def fault(out: torch.Tensor, step: Step, how: How, cache: Any) -> None:
        if max(step.lengths, default=0) > 1:
            act()

    return fault
