"""From a launch to its report. A few seconds of the compiler each; in processes of their own where there are many."""

from __future__ import annotations

import math
import multiprocessing
import re
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvcore.storage import DTYPES

from .configurations import Configuration
from .ir import read_ttir
from .launches import Launch, compile_launch, recorded
from .machine_code import count_floats, count_opcodes, disassemble, read_sass
from .reports import Report

__all__ = ["examine", "examine_all"]


_USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")


def examine(launch: Launch, configuration: Configuration, sm: int, *, compile_only: bool = False) -> Report:
    """Compile `launch` and read what came out. A compile error becomes a report. A few seconds at most."""
    keywords = launch.keywords
    warps = keywords.get("num_warps", 4)
    tiling = ""
    if "ROWS" in keywords:
        tile = f"x{keywords['TILE']}" if "TILE" in keywords else ""
        stages = f" s{keywords['num_stages']}" if "num_stages" in keywords else ""
        tiling = f"{keywords['ROWS']}{tile} w{warps}{stages}"
    known: dict[str, Any] = {
        "configuration": configuration.name,
        "kernel": launch.name,
        "sm": sm,
        "hot": configuration.hot,
        "tiling": tiling,
        "warps": warps,
        "share": _share(launch, configuration, 32 * warps),
    }
    try:
        kernel = compile_launch(launch, sm)
    except Exception as error:
        return Report(**known, error=f"{type(error).__name__}: {error}"[:500])
    known["shared"] = kernel.metadata.shared
    if compile_only:
        return Report(**known)
    usage, sass = disassemble(kernel.asm["cubin"])
    found = _USAGE.search(usage)
    assert found is not None, usage
    known["registers"], known["stack"] = map(int, found.groups())
    known |= read_sass(sass)
    known["narrow"], known["unmasked"] = read_ttir(kernel.asm["ttir"])
    copies = len(re.findall(r"ttg\.async_copy_global_to_local .*tensor<\d+x!tt\.ptr<i32>", kernel.asm["ttgir"]))
    known["table_copies"] = copies * math.ceil(keywords.get("TILE", 0) / (32 * warps))
    # Whether an fma is spelled out does not depend on how many numbers a row has.
    if launch.name.split()[0] in ("attend", "combine") and (configuration.head_dim == 128 or configuration.features):
        fused = compile_launch(launch, sm, enable_fp_fusion=True)
        known["fused"] = count_floats(count_opcodes(disassemble(fused.asm["cubin"])[1]))
    if configuration.hot:
        known["stable"] = _compiles_alike(launch, sm, kernel.asm["cubin"], sass)
    return Report(**known)


def _share(launch: Launch, configuration: Configuration, threads: int) -> int:
    keywords = launch.keywords
    size: int = DTYPES[configuration.cached or configuration.dtype].itemsize
    if launch.name == "copy":
        size = keywords["CHUNK"] * launch.arguments[0].element_size()
    else:
        size *= keywords.get("TILE", keywords.get("TOKENS", threads)) * keywords.get("PADDED", 1)
    return min(128, 8 * size // threads)


def _compiles_alike(launch: Launch, sm: int, cubin: bytes, sass: str) -> bool:
    from triton import knobs

    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        launch.function.device_caches.clear()
        again = compile_launch(launch, sm).asm["cubin"]
    # A cubin names its source file, and the first may come from the cache of another checkout.
    return bool(again == cubin) or disassemble(again)[1] == sass


def _start_worker() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def _work(configuration: Configuration, sm: int, compile_only: bool) -> list[Report]:
    return [examine(launch, configuration, sm, compile_only=compile_only) for launch in recorded(configuration, sm)]


def examine_all(
    configurations: Iterable[Configuration],
    architectures: Sequence[int],
    *,
    compile_only: bool,
    processes: int,
    console: Console,
) -> list[Report]:
    """Everything compiled and read, in the order of the configurations. Progress goes to `console`, if it is a
    terminal. processes: how many compile at once."""
    jobs = [
        (replace(configuration, kernels=(kernel,)), sm)
        for configuration in configurations
        for kernel in configuration.kernels
        for sm in architectures
    ]
    # Spawned: Triton and torch have threads, which a fork does not survive.
    context = multiprocessing.get_context("spawn")
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_start_worker) as pool, bar:
        task = bar.add_task("compiling", total=len(jobs), visible=console.is_terminal)
        futures = [pool.submit(_work, configuration, sm, compile_only) for configuration, sm in jobs]
        try:
            for _ in as_completed(futures):
                bar.advance(task)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        return [report for future in futures for report in future.result()]
