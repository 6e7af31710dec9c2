"""The emulator's branches, memory, exchanges between threads, and products, against what PTX says of where each number
lies; and what it accuses."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from properties.attention.compiled import Fault, Unsupported
from properties.attention.compiled.bits import Array

from .ptx import kernel, launched

# ---- branches --------------------------------------------------------------------------------------------------------


def test_ctas_may_go_around_a_loop_differently_often() -> None:
    body = """
    mov.u32 %r2, %ctaid.x;
    mov.b32 %r3, 0;
    mov.b32 %r4, 0;
$again:
    setp.gt.u32 %p1, %r4, %r2;
    @%p1 bra $done;
    add.s32 %r3, %r3, %r4;
    add.s32 %r4, %r4, 1;
    bra.uni $again;
$done:
    mad.wide.u32 %rd3, %r2, 4, %rd2;
    setp.eq.s32 %p2, %r1, 0;
    @%p2 st.global.b32 [%rd3], %r3;
"""
    out = launched(kernel(body), np.zeros(1), 4 * 40, ctas=40)  # more than go together
    assert out.view(np.uint32).tolist() == [cta * (cta + 1) // 2 for cta in range(40)]


def test_threads_of_one_cta_part_and_meet_again() -> None:
    """Each thread goes around as often as its number says, odd ones with a detour; a shuffle behind it needs all."""
    body = """
    mov.b32 %r2, 0;
    mov.b32 %r3, 0;
$again:
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra $done;
    and.b32 %r5, %r1, 1;
    setp.eq.s32 %p2, %r5, 0;
    @%p2 bra $even;
    add.s32 %r3, %r3, 100;
$even:
    add.s32 %r3, %r3, 1;
    add.s32 %r2, %r2, 1;
    bra.uni $again;
$done:
    shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;
    mad.wide.u32 %rd3, %r1, 8, %rd2;
    st.global.v2.b32 [%rd3], {%r3, %r4};
"""
    out = launched(kernel(body), np.zeros(1), 256).view(np.uint32).reshape(32, 2)
    wanted = [thread * (101 if thread % 2 else 1) for thread in range(32)]
    assert out.tolist() == [[wanted[thread], wanted[thread ^ 1]] for thread in range(32)]


def test_a_barrier_on_one_of_two_ways_is_accused() -> None:
    body = "setp.eq.s32 %p1, %r1, 0;\n@%p1 bra $end;\nbar.sync 0;\n$end:\nmov.b32 %r2, 1;"
    with pytest.raises(Fault, match="not all threads"):
        launched(kernel(body), np.zeros(1), 4)


def test_threads_that_end_alone_are_refused() -> None:
    with pytest.raises(Unsupported, match="some threads"):
        launched(kernel("setp.eq.s32 %p1, %r1, 0;\n@%p1 ret;"), np.zeros(1), 4)


def test_a_guard_keeps_what_threads_had() -> None:
    body = """
    mov.b32 %r2, 7;
    setp.lt.u32 %p1, %r1, 3;
    @%p1 mov.b32 %r2, 8;
    @!%p1 add.s32 %r2, %r2, 100;
    mad.wide.u32 %rd3, %r1, 4, %rd2;
    st.global.b32 [%rd3], %r2;
"""
    assert launched(kernel(body), np.zeros(1), 128).view(np.uint32).tolist() == [8] * 3 + [107] * 29


# ---- global memory ---------------------------------------------------------------------------------------------------


def moved(load: str, store: str, each: int, data: Array, **options: Any) -> Array:
    """Each thread moves `each` bytes."""
    body = f"mad.wide.u32 %rd3, %r1, {each}, %rd1;\nmad.wide.u32 %rd4, %r1, {each}, %rd2;\n{load}\n{store}"
    return launched(kernel(body, **options), data, data.nbytes)


@pytest.mark.parametrize(
    ("load", "store", "each"),
    [
        ("ld.global.b16 %rs1, [%rd3];", "st.global.b16 [%rd4], %rs1;", 2),
        (
            "ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd3+0];",
            "st.global.v4.b32 [ %rd4 + 0 ], { %r2, %r3, %r4, %r5 };",
            16,
        ),
        ("ld.global.v2.b64 {%rd5, %rd6}, [%rd3];", "st.global.v2.b64 [%rd4], {%rd5, %rd6};", 16),
        ("ld.global.b8 %rs1, [%rd3];", "st.global.b8 [%rd4], %rs1;", 1),
    ],
)
def test_bytes_are_moved(load: str, store: str, each: int) -> None:
    data = np.frombuffer(Random(1).randbytes(32 * each), np.uint8)
    assert moved(load, store, each, data).tobytes() == data.tobytes()


def test_small_numbers_fill_wide_registers_with_their_sign_or_zeros() -> None:
    data = np.full(32, -5, np.int32)
    wide = launched(
        kernel("mad.wide.u32 %rd3, %r1, 4, %rd1;\nld.global.s32 %rd5, [%rd3];\nld.global.u32 %rd6, [%rd3];\n"
               "mad.wide.u32 %rd4, %r1, 16, %rd2;\nst.global.v2.b64 [%rd4], {%rd5, %rd6};"), data, 512)  # fmt: skip
    assert wide.view(np.int64).reshape(32, 2).tolist() == [[-5, 2**32 - 5]] * 32


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("ld.global.b32 %r2, [%rd1+64];", "byte 64 of in, which has 64"),
        ("ld.global.b32 %r2, [%rd1+-4];", "before every tensor"),
        ("ld.global.b32 %r2, [%rd1+2];", "no multiple of 4"),
        ("ld.global.b64 %rd3, [%rd1+60];", "multiple of 8|byte 60"),
        ("mov.b32 %r2, 1;\nst.global.b32 [%rd2+128], %r2;", "byte 128 of out"),
    ],
)
def test_accesses_outside_what_was_given_are_accused(body: str, text: str) -> None:
    with pytest.raises(Fault, match=text):
        launched(kernel(body), np.zeros(64, np.uint8), 128)


def test_a_register_that_nothing_has_written_holds_no_sensible_number() -> None:
    out = launched(kernel("prmt.b32 %r2, %r1, %r9, 0x7610;\nst.global.b32 [%rd2], %r9;"), np.zeros(1), 4)
    assert out.view(np.uint32)[0] > 2**31


# ---- exchanges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("step", [0, 1, 5, 16, 31])
@pytest.mark.parametrize("segment", [0, 0x1800, 0x1C00])
def test_shuffles(how: str, step: int, segment: int) -> None:
    clamp = segment if how == "up" else segment | 31
    body = f"""
    add.s32 %r2, %r1, 1000;
    shfl.sync.{how}.b32 %r3|%p1, %r2, {step}, {clamp}, -1;
    selp.b32 %r4, 1, 0, %p1;
    mad.wide.u32 %rd3, %r1, 8, %rd2;
    st.global.v2.b32 [%rd3], {{%r3, %r4}};
"""
    out = launched(kernel(body, threads=64), np.zeros(1), 64 * 8).view(np.uint32).reshape(64, 2)

    def source(lane: int) -> tuple[int, int]:
        mask, bound = clamp >> 8 & 31, clamp & 31
        most = lane & mask | bound & ~mask & 31
        at = {"up": lane - step, "down": lane + step, "bfly": lane ^ step, "idx": lane & mask | step & ~mask & 31}[how]
        fine = at >= most if how == "up" else at <= most
        return (at if fine else lane), int(fine)

    for thread in range(64):
        lane, fine = source(thread % 32)
        assert out[thread].tolist() == [1000 + thread // 32 * 32 + lane, fine]


INTO_SHARED = """
    mov.b32 %r10, smem;
    mad.wide.u32 %rd3, %r1, 16, %rd1;
    ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd3];
    shl.b32 %r6, %r1, 4;
    add.s32 %r6, %r6, %r10;
    st.shared.v4.b32 [%r6], {%r2, %r3, %r4, %r5};
    bar.sync 0;
"""
"""Each thread's 16 bytes, one row of a matrix."""


@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_are_loaded_as_threads_hold_them(transposed: bool) -> None:
    """Thread t of a warp holds (t / 4, 2 * (t % 4)) and the next of each 8 x 8 matrix."""
    data = np.arange(256, dtype=np.uint16)
    trans = ".trans" if transposed else ""
    body = f"""{INTO_SHARED}
    ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r20, %r21, %r22, %r23}}, [%r6];
    mad.wide.u32 %rd4, %r1, 16, %rd2;
    st.global.v4.b32 [%rd4], {{%r20, %r21, %r22, %r23}};
"""
    out = launched(kernel(body), data, 512).view(np.uint16).reshape(32, 4, 2)
    matrices = data.reshape(4, 8, 8)
    for thread in range(32):
        for matrix in range(4):
            row, column = thread // 4, 2 * (thread % 4)
            wanted = [matrices[matrix][row][column + at] for at in (0, 1)]
            if transposed:
                wanted = [matrices[matrix][column + at][row] for at in (0, 1)]
            assert out[thread, matrix].tolist() == wanted


@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_are_stored_as_they_are_loaded(transposed: bool) -> None:
    data = np.frombuffer(Random(2).randbytes(512), np.uint8)
    trans = ".trans" if transposed else ""
    body = f"""{INTO_SHARED}
    ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r20, %r21, %r22, %r23}}, [%r6];
    stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r6+1024], {{%r20, %r21, %r22, %r23}};
    bar.sync 0;
    ld.shared.v4.b32 {{%r2, %r3, %r4, %r5}}, [%r6+1024];
    mad.wide.u32 %rd4, %r1, 16, %rd2;
    st.global.v4.b32 [%rd4], {{%r2, %r3, %r4, %r5}};
"""
    assert launched(kernel(body), data, 512).tobytes() == data.tobytes()


# ---- products --------------------------------------------------------------------------------------------------------


def small(*shape: int, seed: int) -> Array:
    """Whole numbers, of which every model gives the same sums."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def halves(values: Array, kind: str) -> Array:
    return (
        (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        if kind == "bf16"
        else values.astype(np.float16).view(np.uint16)
    )


@pytest.mark.parametrize("sm", [80, 90])
@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_a_warps_product(kind: str, sm: int) -> None:
    a, b, c = small(16, 16, seed=1), small(16, 8, seed=2), small(16, 8, seed=3)
    given = np.zeros((32, 12), np.uint32)
    for thread in range(32):
        group, place = thread // 4, thread % 4
        rows = [(group, 0), (group + 8, 0), (group, 8), (group + 8, 8)]
        parts = [[a[row, 2 * place + inner + at] for at in (0, 1)] for row, inner in rows]
        parts += [[b[2 * place + inner + at, group] for at in (0, 1)] for inner in (0, 8)]
        given[thread, :6] = halves(np.array(parts, np.float32), kind).reshape(6, 2).copy().view(np.uint32)[:, 0]
        sums = [c[group + row, 2 * place + column] for row, column in ((0, 0), (0, 1), (8, 0), (8, 1))]
        given[thread, 6:10] = np.array(sums, np.float32).view(np.uint32)
    loads = "\n".join(f"ld.global.b32 %r{20 + at}, [%rd3+{4 * at}];" for at in range(10))
    body = f"""
    mad.wide.u32 %rd3, %r1, 48, %rd1;
    {loads}
    mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{ %r40, %r41, %r42, %r43 }}, {{ %r20, %r21, %r22, %r23 }},
        {{ %r24, %r25 }}, {{ %r26, %r27, %r28, %r29 }};
    mad.wide.u32 %rd4, %r1, 16, %rd2;
    st.global.v4.b32 [%rd4], {{%r40, %r41, %r42, %r43}};
"""
    out = launched(kernel(body, sm=sm), given, 512).view(np.float32).reshape(32, 4)
    wanted = a @ b + c
    for thread in range(32):
        group, place = thread // 4, thread % 4
        places = [(group + row, 2 * place + column) for row, column in ((0, 0), (0, 1), (8, 0), (8, 1))]
        assert out[thread].tolist() == [wanted[at] for at in places]


@pytest.mark.parametrize(("shape", "rows", "inner"), [("m8n8k4", 8, 4), ("m16n8k16", 16, 16)])
def test_a_warps_product_of_doubles(shape: str, rows: int, inner: int) -> None:
    a, b, c = (
        values.astype(np.float64)
        for values in (small(rows, inner, seed=4), small(inner, 8, seed=5), small(rows, 8, seed=6))
    )
    left, right, sums = rows * inner // 32, inner * 8 // 32, rows * 8 // 32
    given = np.zeros((32, left + right + sums))
    for thread in range(32):
        group, place = thread // 4, thread % 4
        given[thread, :left] = [
            a[group + (8 * (at % 2) if rows == 16 else 0), place + 4 * (at // (rows // 8))] for at in range(left)
        ]
        given[thread, left : left + right] = [b[place + 4 * at, group] for at in range(right)]
        given[thread, left + right :] = [c[group + 8 * (at // 2), 2 * place + at % 2] for at in range(sums)]
    names = [f"%rd{20 + at}" for at in range(left + right + sums)]
    loads = "\n".join(f"ld.global.b64 {name}, [%rd3+{8 * at}];" for at, name in enumerate(names))
    stores = "\n".join(f"st.global.b64 [%rd4+{8 * at}], {names[left + right + at]};" for at in range(sums))
    parts = [", ".join(names[begin:end]) for begin, end in ((left + right, None), (0, left), (left, left + right))]
    body = f"""
    mad.wide.u32 %rd3, %r1, {8 * len(names)}, %rd1;
    {loads}
    mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64 {{{parts[0]}}}, {{{parts[1]}}}, {{{parts[2]}}}, {{{parts[0]}}};
    mad.wide.u32 %rd4, %r1, {8 * sums}, %rd2;
    {stores}
"""
    out = launched(kernel(body), given, 32 * 8 * sums).view(np.float64).reshape(32, sums)
    wanted = a @ b + c
    for thread in range(32):
        group, place = thread // 4, thread % 4
        assert out[thread].tolist() == [wanted[group + 8 * (at // 2), 2 * place + at % 2] for at in range(sums)]


def swizzled(values: Array, width: int, across: bool) -> tuple[bytes, int, int]:
    """(shared memory, lead, stride) of an operand uint16 [rows, 16] in atoms of 8 rows of `width` bytes, each row's
    pieces of 16 bytes dealt out anew. across: consecutive elements are rows."""
    lines = values.T if across else values  # [outer, elements that lie together]
    outer, along = lines.shape
    each = width // 2
    if along < each:  # an atom's row is longer than the operand: what fills it is never read
        lines = np.concatenate((lines, np.full((outer, each - along), 0x7FC0, np.uint16)), 1)
        along = each
    memory = bytearray(outer * along * 2)
    atom = 8 * width
    atoms_along = along // each
    for line in range(outer):
        for at in range(along):
            piece = at % each * 2 // 16
            if width > 16:
                piece ^= line % 8 * width // 128 % (width // 16)
            base = (
                (line // 8 * atoms_along + at // each) * atom
                if across
                else (at // each * (outer // 8) + line // 8) * atom
            )
            begin = base + line % 8 * width + piece * 16 + at % 8 * 2
            memory[begin : begin + 2] = int(lines[line, at]).to_bytes(2, "little")
    if across:
        return bytes(memory), atom, atoms_along * atom
    return bytes(memory), (outer // 8) * atom, atom


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("registers", [False, True])
def test_a_warpgroups_product(width: int, across: bool, registers: bool) -> None:
    columns = 64
    a, b = small(64, 16, seed=7), small(16, columns, seed=8)
    left, left_lead, left_stride = swizzled(halves(a, "bf16"), width, False)
    right, lead, stride = swizzled(halves(np.ascontiguousarray(b.T), "bf16"), width, across)
    left += bytes(-len(left) % 1024)
    size = len(left) + len(right)
    mode = {128: 1, 64: 2, 32: 3}[width]

    def descriptor(begin: int, lead: int, stride: int) -> int:
        return begin >> 4 | lead >> 4 << 16 | stride >> 4 << 32 | mode << 62

    fragments = np.zeros((128, 4), np.uint32)
    for thread in range(128):
        warp, group, place = thread // 32, thread % 32 // 4, thread % 4
        parts = [[a[16 * warp + group + row, 2 * place + inner + at] for at in (0, 1)]
                 for row, inner in ((0, 0), (8, 0), (0, 8), (8, 8))]  # fmt: skip
        fragments[thread] = halves(np.array(parts, np.float32), "bf16").copy().view(np.uint32)[:, 0]
    given = np.frombuffer(left + right + bytes(-size % 2048) + fragments.tobytes(), np.uint8)
    padded = size + -size % 2048
    copies = "\n".join(
        f"ld.global.v4.b32 {{%r2, %r3, %r4, %r5}}, [%rd3+{at}];\nst.shared.v4.b32 [%r6+{at}], {{%r2, %r3, %r4, %r5}};"
        for at in range(0, padded, 2048)
    )
    sums = [f"%r{100 + at}" for at in range(columns // 2)]
    operand = "{%r20, %r21, %r22, %r23}" if registers else "%rd20"
    flags = f"1, 1, {int(across)}" if registers else f"1, 1, 0, {int(across)}"
    stores = "\n".join(f"st.global.b32 [%rd4+{4 * at}], {name};" for at, name in enumerate(sums))
    body = f"""
    mov.b32 %r10, smem;
    mad.wide.u32 %rd3, %r1, 16, %rd1;
    shl.b32 %r6, %r1, 4;
    add.s32 %r6, %r6, %r10;
    {copies}
    ld.global.v4.b32 {{%r20, %r21, %r22, %r23}}, [%rd3+{padded}];
    mov.b64 %rd20, {descriptor(0, left_lead, left_stride):#x};
    mov.b64 %rd21, {descriptor(len(left), lead, stride):#x};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{",".join(sums)}}}, {operand}, %rd21, 0, {flags};
    wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{",".join(sums)}}}, {operand}, %rd21, 1, {flags};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mad.wide.u32 %rd4, %r1, {2 * columns}, %rd2;
    {stores}
"""
    out = launched(kernel(body, threads=128), given, 128 * 2 * columns, shared=padded).view(np.float32)
    out = out.reshape(128, columns // 8, 2, 2)  # thread, block of eight columns, row or the eighth below it, column
    wanted = 2 * (a @ b)
    for thread in range(128):
        warp, group, place = thread // 32, thread % 32 // 4, thread % 4
        rows = 16 * warp + group
        for block in range(columns // 8):
            at = 8 * block + 2 * place
            assert out[thread, block].tolist() == [wanted[rows + 8 * low, at : at + 2].tolist() for low in (0, 1)]


# ---- what is accused -------------------------------------------------------------------------------------------------

BASE = """
    mov.b32 %r10, smem;
    shl.b32 %r6, %r1, 2;
    add.s32 %r6, %r6, %r10;
    xor.b32 %r7, %r6, 128;
"""
"""%r6: a thread's own word; %r7: one that another warp has."""

STORE, LOAD, OTHERS, BARRIER = (
    "st.shared.b32 [%r6], %r1;",
    "ld.shared.b32 %r8, [%r6];",
    "ld.shared.b32 %r8, [%r7];",
    "bar.sync 0;",
)
COPY = """
    mad.wide.u32 %rd3, %r1, 4, %rd1;
    cp.async.ca.shared.global [ %r6 + 0 ], [ %rd3 + 0 ], 0x4;
    cp.async.commit_group;
"""
WAIT = "cp.async.wait_group 0;"

FINE = {
    "a word of one's own": [STORE, LOAD],
    "another warp's, behind a barrier": [STORE, BARRIER, OTHERS],
    "written again behind a barrier": [STORE, BARRIER, OTHERS, BARRIER, STORE],
    "copied, waited for, one's own": [COPY, WAIT, LOAD],
    "copied, waited for, behind a barrier": [COPY, WAIT, BARRIER, OTHERS],
}
WRONG = {
    "never written": ([LOAD], "nothing has written"),
    "another warp's, without a barrier": ([STORE, OTHERS], "another warp wrote"),
    "written while another warp reads": ([STORE, BARRIER, OTHERS, STORE], "another warp read"),
    "copied, not waited for": ([COPY, BARRIER, LOAD], "still copying"),
    "copied, waited for, no barrier": ([COPY, WAIT, OTHERS], "another warp wrote"),
    "copied over what another warp reads": ([STORE, BARRIER, OTHERS, COPY], "another warp read"),
    "written where it is copied to": ([COPY, STORE], "still copying"),
    "beyond the end": (["st.shared.b32 [%r6+8192], %r1;"], "which has 8192"),
    "not aligned": (["st.shared.b32 [%r6+2], %r1;"], "4 bytes"),
    "by several at once": (["st.shared.b32 [%r10], %r1;"], "different values"),
    "a barrier for some": (["setp.eq.s32 %p1, %r1, 0;", "@%p1 bar.sync 0;"], "not all threads"),
    "a shuffle for some": (["setp.eq.s32 %p1, %r1, 0;", "@%p1 shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;"], "take part"),
}


def run(*lines: str) -> None:
    launched(kernel("\n".join((BASE, *lines)), threads=64), np.zeros(64, np.uint32), 4)


@pytest.mark.parametrize("name", FINE)
def test_what_barriers_and_waits_allow(name: str) -> None:
    run(*FINE[name])


@pytest.mark.parametrize("name", WRONG)
def test_what_barriers_and_waits_are_for(name: str) -> None:
    lines, text = WRONG[name]
    with pytest.raises(Fault, match=text):
        run(*lines)


SUMS = ",".join(f"%r{100 + at}" for at in range(4))
WGMMA = (
    f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{SUMS}}}, {{%r20, %r20, %r20, %r20}}, %rd21, 0, 1, 1, 0;"
)
WRITE = "st.shared.v4.b32 [%r6], {%r20, %r20, %r20, %r20};"
COMMIT, DONE = "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"
FENCE = "fence.proxy.async.shared::cta;"
USE = "add.rn.f32 %r2, %r100, %r101;"

WARPGROUP = {
    "": ([WRITE, FENCE, BARRIER, WGMMA, COMMIT, DONE, USE, BARRIER, WRITE], ""),
    "no fence": ([WRITE, BARRIER, WGMMA], "fence.proxy.async"),
    "no wait": ([WRITE, FENCE, BARRIER, WGMMA, COMMIT, USE], "still computing"),
    "no commit": ([WRITE, FENCE, BARRIER, WGMMA, DONE, USE], "still computing"),
    "written while it is read": ([WRITE, FENCE, BARRIER, WGMMA, COMMIT, BARRIER, WRITE], "still reading"),
    "no barrier": ([WRITE, FENCE, WGMMA], "another warp wrote"),
}


@pytest.mark.parametrize("name", WARPGROUP)
def test_a_warpgroups_products_are_waited_for(name: str) -> None:
    lines, text = WARPGROUP[name]
    setup = "mov.b32 %r10, smem;\nshl.b32 %r6, %r1, 4;\nadd.s32 %r6, %r6, %r10;\nmov.b32 %r20, 0;\n"
    descriptor = 0 | 16 >> 4 << 16 | 128 >> 4 << 32 | 3 << 62
    machine = kernel(f"{setup}mov.b64 %rd21, {descriptor:#x};\n" + "\n".join(lines), threads=128)
    if not text:
        launched(machine, np.zeros(1), 4)
        return
    with pytest.raises(Fault, match=text):
        launched(machine, np.zeros(1), 4)
