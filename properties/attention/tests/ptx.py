"""Small kernels in PTX, for tests of the emulator: each thread reads its inputs, does something, stores what came."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from properties.attention.compiled.bits import Array
from properties.attention.compiled.machine import Machine
from properties.attention.compiled.memory import Global, Region
from properties.attention.compiled.text import parse

__all__ = ["INTO", "TYPES", "executed", "kernel", "launched"]

HEAD = """.version 8.7
.target sm_{sm}
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry test(.param .u64 in, .param .u64 out)
.reqntid {threads}
{{
    .reg .pred %p<200>;
    .reg .b16 %rs<200>;
    .reg .b32 %r<800>;
    .reg .b64 %rd<200>;
    ld.param.b64 %rd1, [in];
    ld.param.b64 %rd2, [out];
    mov.u32 %r1, %tid.x;
{body}
    ret;
}}
"""

TYPES = {1: ("pred", "%p"), 16: ("b16", "%rs"), 32: ("b32", "%r"), 64: ("b64", "%rd")}
INTO = 100
"""Registers from this number on are the inputs; `%X99` holds the result."""


def kernel(body: str, *, sm: int = 90, threads: int = 32) -> Machine:
    return Machine(parse(HEAD.format(sm=sm, threads=threads, body=body)))


def launched(machine: Machine, given: Array, size: int, *, shared: int = 8192, ctas: int = 1) -> Array:
    """What it writes: uint8 [size]. given: any array, whose bytes it reads."""
    source = np.ascontiguousarray(given).view(np.uint8).reshape(-1)
    out = np.zeros(size, np.uint8)
    regions = [Region("in", 1 << 20, source), Region("out", 1 << 40, out)]
    places = [np.array([[place]], np.uint64) for place in (1 << 20, 1 << 40)]
    machine.run((ctas, 1, 1), places, Global(regions), shared)
    return out


def executed(instruction: str, widths: Sequence[int], to: int, rows: Sequence[Sequence[int]]) -> list[int]:
    """What `instruction` makes of each row of bit patterns, of `widths` bits each; the result has `to` bits.

    In the instruction, {0}, {1}, ... are the inputs, {d} is the result."""
    threads = -(-len(rows) // 32) * 32
    lines = []
    for place, bits in enumerate(widths):
        name = f"{TYPES[bits][1]}{INTO + place}"
        wide = f"%rd{INTO + 50 + place}"
        lines += [
            f"mad.wide.u32 %rd10, %r1, {8 * len(widths)}, %rd1;",
            f"ld.global.b64 {wide}, [%rd10+{8 * place}];",
            {
                1: f"setp.ne.b64 {name}, {wide}, 0;",
                16: f"cvt.u16.u64 {name}, {wide};",
                32: f"cvt.u32.u64 {name}, {wide};",
                64: f"mov.b64 {name}, {wide};",
            }[bits],
        ]
    named = {str(place): f"{TYPES[bits][1]}{INTO + place}" for place, bits in enumerate(widths)}
    result = f"{TYPES[to][1]}39" if to == 1 else f"{TYPES[to][1]}99"
    text = instruction.format(*[named[str(place)] for place in range(len(widths))], d=result)
    widen = {1: f"selp.b64 %rd11, 1, 0, {result};", 64: f"mov.b64 %rd11, {result};"}.get(
        to, f"cvt.u64.u{to} %rd11, {result};"
    )
    lines += [text, widen, "mad.wide.u32 %rd12, %r1, 8, %rd2;", "st.global.b64 [%rd12], %rd11;"]
    given = np.zeros((threads, len(widths)), np.uint64)
    given[: len(rows)] = np.array([list(row) for row in rows], np.uint64)
    out = launched(kernel("\n".join(lines), threads=threads), given, 8 * threads)
    return [int(value) for value in out.view(np.uint64)[: len(rows)]]
