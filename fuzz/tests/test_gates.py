"""The static gates hold for the hot launches, the committed table is what the compiler makes today, and every gate can
fail: what it is there to find is refused.

The compiler runs in processes of its own, without TRITON_INTERPRET; this one does not even import Triton, which may be
an interpreter to other tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if not (find_spec("torch") and find_spec("triton")):
    pytest.skip("needs torch and Triton", allow_module_level=True)

from typer.testing import CliRunner

from fuzz.tools import gates
from fuzz.tools.gates import GATES, Report

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "generated" / "gates.json"


def compiler(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, **options)


@dataclass(frozen=True)
class Hot:
    architectures: set[int]
    reports: list[Report]
    versions: dict[str, str]


@pytest.fixture(scope="module", params=[{90}, pytest.param({80, 100}, marks=pytest.mark.nightly)], ids=str)
def hot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Hot:
    """The hot launches compiled: by day for one architecture, by night for the others."""
    file = tmp_path_factory.mktemp("gates") / "hot.json"
    sm = ",".join(map(str, request.param))
    done = compiler("-m", "fuzz.tools.gates", "--hot", "--sm", sm, "--json", str(file))
    assert file.exists(), done.stderr
    versions, reports = gates.from_json(file.read_text())
    return Hot(request.param, reports, versions)


# ---- what is shipped -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", GATES)
def test_hot_launches_pass(hot: Hot, gate: str) -> None:
    assert [line for line in gates.failures(hot.reports) if f": {gate}: " in line] == []


def test_hot_launches_are_all_there(hot: Hot) -> None:
    float_cache = {"store", "attend small", "attend large", "combine small", "combine large", "copy", "audit"}
    assert {report.sm for report in hot.reports} == hot.architectures
    for sm in hot.architectures:
        for name, kernels in (("bf16 D128 G4 B16", float_cache), ("bf16+fp8 D128 G4 B16", float_cache - {"audit"})):
            assert {entry.kernel for entry in hot.reports if entry.configuration == name and entry.sm == sm} == kernels


def test_hot_launches_are_those_of_the_table(hot: Hot) -> None:
    versions, reports = gates.from_json(TABLE.read_text())
    if versions != hot.versions:
        pytest.skip(f"docs/generated/gates.json was made with {versions}, this is {hot.versions}")
    wanted = [report for report in reports if report.hot and report.sm in hot.architectures]
    assert gates.drifts(hot.reports, wanted) == []


def test_table_is_complete_and_passes() -> None:
    _, reports = gates.from_json(TABLE.read_text())
    assert {(report.configuration, report.sm) for report in reports} == {
        (configuration.name, sm) for configuration in gates.CONFIGURATIONS for sm in (80, 90, 100)
    }
    assert gates.failures(reports) == []


def test_page_shows_the_table() -> None:
    assert TABLE.with_suffix(".md").read_text() == gates.markdown(*gates.from_json(TABLE.read_text()))


def test_configurations_have_names_of_their_own() -> None:
    names = [configuration.name for configuration in gates.CONFIGURATIONS]
    assert len(set(names)) == len(names)


# ---- every gate can fail ---------------------------------------------------------------------------------------------

ATTEND = Report(
    configuration="bf16 D128 G4 B16",
    kernel="attend large",
    sm=90,
    hot=True,
    tiling="128x64 w8 s3",
    warps=8,
    registers=238,
    shared=100_000,
    instructions=3000,
    copies={128: 16, 32: 6},
    table_copies=6,
    loads={128: 8, 32: 7},
    stores={128: 24, 32: 2},
    matrix={"HGMMA.64x64x16.F32.BF16": 8, "HGMMA.64x128x16.F32.BF16": 4},
    floats={"FADD": 40, "FFMA": 400},
    fused={"FADD": 40, "FFMA": 400},
    stable=True,
)
DECODE = replace(ATTEND, kernel="attend small", tiling="16x64 w4 s3", warps=4, matrix={"HMMA.16816.F32.BF16": 36})
STORE = replace(ATTEND, kernel="store", tiling="", copies={}, table_copies=0, stores={128: 4}, matrix={}, fused=None)


@pytest.mark.parametrize("report", [ATTEND, DECODE, STORE], ids=lambda report: report.kernel)
def test_good_report_passes(report: Report) -> None:
    assert gates.failures([report]) == []


@pytest.mark.parametrize(
    ("report", "gate"),
    [
        (replace(ATTEND, error="CompilationError: no"), "compiles"),
        (replace(ATTEND, spills=2), "spills"),
        (replace(ATTEND, stack=8), "spills"),
        (replace(ATTEND, shared=227 * 1024 + 1), "shared memory"),
        (replace(DECODE, sm=80, shared=163 * 1024 + 1), "shared memory"),
        (replace(ATTEND, copies={128: 16, 64: 8, 32: 6}), "128-bit copies"),
        (replace(ATTEND, copies={128: 16, 32: 7}), "128-bit copies"),
        (replace(ATTEND, copies={32: 6}), "128-bit copies"),
        (replace(ATTEND, copies={}, loads={32: 247}), "128-bit copies"),
        (replace(STORE, stores={128: 4, 64: 1}), "128-bit stores"),
        (replace(STORE, stores={}), "128-bit stores"),
        (replace(STORE, stores={64: 4}), "128-bit stores"),
        (replace(ATTEND, matrix={}), "matrix units"),
        (replace(ATTEND, matrix={**ATTEND.matrix, "HMMA.16816.F32.BF16": 4}), "matrix units"),
        (replace(ATTEND, matrix={"HGMMA.64x64x16.F32": 8}), "matrix units"),
        (replace(DECODE, matrix=ATTEND.matrix), "matrix units"),
        (replace(ATTEND, sm=100), "matrix units"),
        (replace(DECODE, configuration="fp32 D128 G4 B16"), "matrix units"),
        (replace(ATTEND, fused={"FADD": 0, "FFMA": 440}), "fusion"),
        (replace(ATTEND, fused={"FADD": 39, "FFMA": 401}), "fusion"),
        (replace(ATTEND, atomics=1), "atomics"),
        (replace(ATTEND, narrow=("k_ptr",)), "64-bit addresses"),
        (replace(ATTEND, unmasked=("table_ptr",)), "masks"),
        (replace(ATTEND, stable=False), "stable"),
    ],
)
def test_gate_refuses(report: Report, gate: str) -> None:
    (line,) = gates.failures([report])
    assert line.startswith(f"{report.configuration}, {report.kernel}, sm_{report.sm}: {gate}: ")


@pytest.mark.parametrize(
    "report",
    [
        replace(ATTEND, sm=80, tiling="64x64 w8 s2", spills=2, stack=8, matrix=DECODE.matrix),
        replace(ATTEND, configuration="bf16 D256 G4 B16", hot=False, spills=2, stack=8),
        replace(ATTEND, configuration="bf16+fp8 D128 G4 B16", copies={128: 8, 64: 16, 32: 6}),
        replace(ATTEND, configuration="bf16 D72 G4 B16", copies={}, loads={16: 144}),
        replace(ATTEND, sm=100, matrix={"UTCHMMA": 8}),
        replace(STORE, share=64, stores={64: 2}),
        replace(ATTEND, floats={"FADD": 40, "FFMA": 400, "FMUL": 16}),
        replace(ATTEND, share=64, copies={64: 4, 32: 6}),
        replace(ATTEND, configuration="fp32 D64 G4 B16 window softcap alibi", matrix={"DMMA.884": 9}, fused={}),
        replace(DECODE, configuration="fp32 D128 G4 B16", matrix={"DMMA.8x8x4": 112}),
    ],
)
def test_gate_knows_its_exceptions(report: Report) -> None:
    assert gates.failures([report]) == []


# ---- drift -----------------------------------------------------------------------------------------------------------


def test_small_moves_are_no_drift() -> None:
    moved = replace(ATTEND, registers=249, shared=95_000, instructions=3150, floats={}, copies={})
    assert gates.drifts([moved], [ATTEND]) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"registers": 250}, "registers 238 -> 250"),
        ({"registers": 226}, "registers 238 -> 226"),
        ({"shared": 105_001}, "shared 100000 -> 105001"),
        ({"instructions": 2849}, "instructions 3000 -> 2849"),
        ({"spills": 1}, "spills 0 -> 1"),
        ({"stack": 8}, "stack 0 -> 8"),
        ({"error": "no"}, "error None -> no"),
        ({"matrix": {"HMMA.16816.F32.BF16": 1}}, "matrix opcodes HGMMA.64x64x16.F32.BF16, HGMMA.64x128x16.F32.BF16 ->"),
    ],
)
def test_drift(change: dict[str, Any], message: str) -> None:
    (line,) = gates.drifts([replace(ATTEND, **change)], [ATTEND])
    assert line.startswith(f"bf16 D128 G4 B16, attend large, sm_90: {message}")


def test_first_shared_memory_is_drift() -> None:
    assert gates.drifts([ATTEND], [replace(ATTEND, shared=0)])


def test_other_launches_are_drift() -> None:
    assert gates.drifts([ATTEND], []) == ["bf16 D128 G4 B16, attend large, sm_90: not in the table"]
    assert gates.drifts([], [ATTEND]) == ["bf16 D128 G4 B16, attend large, sm_90: no longer compiled"]


def test_reports_survive_json() -> None:
    reports = [ATTEND, replace(STORE, stable=False, fused={}, unmasked=("table_ptr",), error="no")]
    assert gates.from_json(gates.to_json({"triton": "1"}, reports)) == ({"triton": "1"}, reports)


# ---- readers ---------------------------------------------------------------------------------------------------------

SASS = """
	.section	.text.attend,"ax",@progbits
attend:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   LDG.E R9, desc[UR12][R126.64] ;
        /*0020*/              @!P0 LDG.E.LTC128B.U8 R9, desc[UR12][R126.64] ;
        /*0030*/              @P1  LDG.E.128.CONSTANT R4, desc[UR12][R2.64] ;
        /*0040*/                   LDGSTS.E.BYPASS.LTC128B.128 [R3], desc[UR12][R2.64], P1 ;
        /*0050*/             @!UP0 LDGSTS.E.LTC128B.64 [R3], desc[UR12][R2.64] ;
        /*0060*/                   LDGSTS.E [R3+0x800], desc[UR12][R2.64] ;
        /*0070*/                   HFMA2.MMA R5, -RZ, RZ, 0, 0 ;
        /*0080*/                   HMMA.16816.F32.BF16 R4, R8, R12, RZ ;
        /*0090*/                   HGMMA.64x16x16.F32.BF16 R24, R24, gdesc[UR8], RZ ;
        /*00a0*/                   UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR5], tmem[UR8], idesc[UR9], UP1 ;
        /*00b0*/                   FFMA R4, R5, R6, R7 ;
        /*00c0*/                   FFMA2 R4, R4.F32x2.HI_LO, R6.F32x2.HI_LO, R8.F32x2.HI_LO ;
        /*00d0*/              @P0  FADD.FTZ R4, R4, R5 ;
        /*00e0*/                   STL.64 [R1+0x8], R4 ;
        /*00f0*/                   LDL R4, [R1] ;
        /*0100*/                   ATOMS.OR RZ, [UR7+0x14], R2 ;
        /*0110*/                   RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5 ;
        /*0120*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0130*/                   EXIT ;
.L_x_0:
        /*0140*/                   BRA `(.L_x_0) ;
        /*0150*/                   NOP ;
        /*0160*/                   NOP ;
"""


def test_sass() -> None:
    assert gates.read_sass(SASS) == {
        "spills": 2,
        "instructions": 21,
        "copies": {128: 1, 64: 1, 32: 1},
        "loads": {128: 1, 32: 1, 8: 1},
        "stores": {128: 1},
        "matrix": {"HGMMA.64x16x16.F32.BF16": 1, "HMMA.16816.F32.BF16": 1, "UTCHMMA": 1},
        "floats": {"FADD": 1, "FFMA": 1, "FFMA2": 1},
        "atomics": 1,
    }


TTIR = """
#loc = loc("attention.py":98:0)
module {
  tt.func public @attend(%k_ptr: !tt.ptr<bf16> {tt.divisibility = 16 : i32} loc("k_ptr"(#loc)), %table_ptr: !tt.ptr<i32> loc("table_ptr"(#loc)), %context_ptr: !tt.ptr<i32> loc("context_ptr"(#loc)), %k_block: i32 loc("k_block"(#loc)), %leaf: i32 loc("leaf"(#loc))) attributes {noinline = false} {
    %cst = arith.constant dense<0> : tensor<64xi32> loc(#loc1)
    %cst_0 = arith.constant dense<0.0> : tensor<64xbf16> loc(#loc1)
    %c64_i32 = arith.constant 64 : i32 loc(#loc1)
    %key = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32> loc(#loc1)
    %context = tt.load %context_ptr : !tt.ptr<i32> loc(#loc2)
    %low = arith.muli %leaf, %c64_i32 : i32 loc(#loc2)
    %sum:2 = scf.for %start = %low to %context step %c64_i32 iter_args(%total = %cst_0, %last = %cst) -> (tensor<64xbf16>, tensor<64xi32>)  : i32 {
      %0 = tt.splat %start : i32 -> tensor<64xi32> loc(#loc3)
      %place = arith.addi %0, %key : tensor<64xi32> loc(#loc3)
      %known = tt.splat %context : i32 -> tensor<64xi32> loc(#loc3)
      %known_1 = arith.cmpi slt, %place, %known : tensor<64xi32> loc(#loc3)
      %1 = tt.splat %table_ptr : !tt.ptr<i32> -> tensor<64x!tt.ptr<i32>> loc(#loc4)
      %2 = tt.addptr %1, %place : tensor<64x!tt.ptr<i32>>, tensor<64xi32> loc(#loc4)
      %block = tt.load %2, %known_1, %cst : tensor<64x!tt.ptr<i32>> loc(#loc4)
      %wide = arith.extsi %block : tensor<64xi32> to tensor<64xi64> loc(#loc5)
      %3 = arith.extsi %k_block : i32 to i64 loc(#loc5)
      %4 = tt.splat %3 : i64 -> tensor<64xi64> loc(#loc5)
      %5 = arith.muli %wide, %4 : tensor<64xi64> loc(#loc5)
      %6 = tt.splat %k_ptr : !tt.ptr<bf16> -> tensor<64x!tt.ptr<bf16>> loc(#loc5)
      %7 = tt.addptr %6, %5 : tensor<64x!tt.ptr<bf16>>, tensor<64xi64> loc(#loc5)
      %k = tt.load %7, %known_1, %cst_0 : tensor<64x!tt.ptr<bf16>> loc(#loc5)
      scf.yield %k, %place : tensor<64xbf16>, tensor<64xi32> loc(#loc6)
    } loc(#loc6)
    tt.return loc(#loc7)
  } loc(#loc)
} loc(#loc)
"""  # noqa: E501


def test_ttir() -> None:
    assert gates.read_ttir(TTIR) == ((), ())


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (
            "%wide = arith.extsi %block : tensor<64xi32> to tensor<64xi64> loc(#loc5)\n",
            "%8 = tt.splat %k_block : i32 -> tensor<64xi32> loc(#loc5)\n"
            "      %9 = arith.muli %block, %8 : tensor<64xi32> loc(#loc5)\n"
            "      %wide = arith.extsi %9 : tensor<64xi32> to tensor<64xi64> loc(#loc5)\n",
            (("k_ptr",), ()),
        ),
        (
            "%wide = arith.extsi %block : tensor<64xi32> to tensor<64xi64> loc(#loc5)\n",
            "%8 = tt.splat %k_block : i32 -> tensor<64xi32> loc(#loc5)\n"
            "      %9 = scf.if %known -> (tensor<64xi32>) {\n"
            "        %10 = arith.muli %block, %8 overflow<nsw> : tensor<64xi32> loc(#loc5)\n"
            "        scf.yield %10 : tensor<64xi32> loc(#loc5)\n"
            "      } else {\n"
            "        scf.yield %block : tensor<64xi32> loc(#loc5)\n"
            "      } loc(#loc5)\n"
            "      %wide = arith.extsi %9 : tensor<64xi32> to tensor<64xi64> loc(#loc5)\n",
            (("k_ptr",), ()),
        ),
        ("tt.load %2, %known_1, %cst :", "tt.load %2 :", ((), ("table_ptr",))),
        ("tt.load %7, %known_1, %cst_0 :", "tt.load %7 :", ((), ("k_ptr",))),
        ("arith.cmpi slt, %place, %known :", "arith.cmpi slt, %place, %key :", ((), ("k_ptr", "table_ptr"))),
        (
            "scf.yield %k, %place",
            "tt.store %7, %k : tensor<64x!tt.ptr<bf16>> loc(#loc5)\n      scf.yield %k, %place",
            ((), ("k_ptr",)),
        ),
    ],
)
def test_ttir_with_a_fault(old: str, new: str, found: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    assert TTIR.count(old) == 1
    assert gates.read_ttir(TTIR.replace(old, new)) == found


PLANT = """
import importlib.util, json, sys
from pathlib import Path
from unittest import mock
from fuzz.tools import gates
from kvcore.kernels import attention

source = Path(attention.__file__).read_text()
for number, (sm, old, new) in enumerate(json.loads(sys.argv[2])):
    assert source.count(old) == 1, old
    file = Path(sys.argv[1]) / f"planted{number}.py"
    file.write_text(source.replace(old, new))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    planted = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(planted)
    with mock.patch.object(attention, "attend", planted.attend):
        launch = gates.recorded(gates.Configuration(), sm)[0]
    print(json.dumps(gates.read_ttir(gates.compile_launch(launch, sm).asm["ttir"])))
"""


def test_faults_planted_in_the_kernel_are_found(tmp_path: Path) -> None:
    """Each compiled for another architecture, so that all of them are compiled for by day, too."""
    table = "block = tl.load(table + place // BLOCK_SIZE"
    faults = [
        (90, "mask=known, other=0).to(tl.int64)", "mask=known, other=0)"),
        (80, f"{table}, mask=known, other=0)", f"{table})"),
        (100, "known = place < context", "known = place > leaf"),
    ]
    done = compiler("-c", PLANT, str(tmp_path), json.dumps(faults))
    assert done.returncode == 0, done.stderr
    narrow, unmasked, unbounded = map(json.loads, done.stdout.splitlines())
    assert narrow == [["k_ptr", "v_ptr"], []]
    assert unmasked == [[], ["table_ptr"]]
    assert unbounded == [[], ["k_ptr", "table_ptr", "v_ptr"]]


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        ([], {"TRITON_INTERPRET": "1"}, "TRITON_INTERPRET"),
        (["--sm", "70"], {}, "--sm takes numbers"),
        (["--sm", "hopper"], {}, "--sm takes numbers"),
        (["--write", "--hot"], {}, "--write writes the whole table"),
        (["--check", "--compile-only"], {}, "--compile-only reads no numbers"),
        (["--check", "--docs", "nowhere"], {}, "cannot read nowhere"),
    ],
)
def test_usage(arguments: list[str], environment: dict[str, str], message: str) -> None:
    result = CliRunner().invoke(gates.app, arguments, env={"TRITON_INTERPRET": "0", **environment})
    assert result.exit_code == 2
    assert message in result.stderr


def test_table_of_another_triton_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gates.json").write_text(gates.to_json({"triton": "2.0"}, [ATTEND]))
    done = compiler("-m", "fuzz.tools.gates", "--check", "--docs", str(tmp_path))
    assert done.returncode == 2
    assert "the table was made with" in done.stderr
