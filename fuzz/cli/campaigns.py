"""Runs a plan: places its workers, shows what happens, writes the page, and ends with the exit status."""

from __future__ import annotations

import secrets
import shlex
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

import typer
from rich.markup import escape

from ..campaign.campaign import Campaign
from ..campaign.cluster import NoCluster, NoRay, RayWorkers, connected
from ..campaign.executor import Executor, Making
from ..campaign.executors import executor_of
from ..campaign.folder import Busy
from ..campaign.history import BadHistory
from ..campaign.journal import NothingToResume, journal_of
from ..campaign.outcome import CampaignResult
from ..campaign.plans import BadPlan, CampaignPlan, overruled, ready
from ..engines.registry import on_kernels
from ..findings.baseline import BadBaseline
from ..runs.status import CLEAN, HARNESS
from ..show.page import render
from .common import Interruptible, complaints, console, kernels_of, now, usage
from .display import Display, announce, summarize

__all__ = ["OnRay", "campaign"]


@dataclass(frozen=True, slots=True)
class OnRay:
    """A campaign's workers are on a Ray. address: "" starts one on this machine. gpus: of each worker."""

    address: str = ""
    gpus: float = 0.0


def _placed(plan: CampaignPlan, ray: OnRay, open: ExitStack) -> tuple[CampaignPlan, Making]:
    """The plan with as many workers as it will have on `ray`, and what makes them. Exits with 2 or 3."""
    if plan.devices:
        usage("devices are of this machine; with --engine ray give --ray-gpus, the GPUs of each worker")
    try:
        cluster = open.enter_context(connected(ray.address, plan.processes))
    except NoRay as error:
        usage(str(error))
    except NoCluster as error:
        complaints.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(HARNESS) from None
    room = cluster.room(ray.gpus)
    plan = replace(plan, workers=plan.workers or max(1, room))
    if room < plan.workers:
        each = f"a CPU and {ray.gpus:g} GPUs" if ray.gpus else "a CPU"
        if cluster.own:
            usage(f"{plan.workers} workers with {each} each, and this machine has room for {room}")
        console.print(
            f"[yellow]the Ray cluster has room for {room} of {plan.workers} workers now ({each} each); the others wait "
            "until it has grown[/]",
            soft_wrap=True,
        )

    def workers(spool: Path, alive: Callable[[int], None]) -> Executor:
        return RayWorkers(cluster, plan.processes, monotonic, gpus=ray.gpus, memory=plan.memory, hang=plan.hang)

    return plan, workers


def campaign(
    name: str,
    flags: Mapping[str, Any],
    out: Path,
    baseline: Path | None,
    resume: bool,
    base: CampaignPlan,
    ray: OnRay | None = None,
) -> NoReturn:
    """`run --campaign name` with `flags` that were given (by the plan's own names); without a name, `base`. Ends with
    the exit status. ray: where the workers are, if not on this machine."""
    try:
        plan = ready(name) if name else base
        if resume and not name:
            plan = CampaignPlan.from_json(journal_of(out)["plan"])
        plan = overruled(plan, flags)
        if on_kernels(engine for engine, share in plan.engines.items() if share > 0):
            plan = replace(plan, kernels=kernels_of(plan.kernels, plan.targets))
        else:
            plan = replace(plan, kernels="")
        plan = overruled(plan, {"seed": plan.seed or str(secrets.randbits(32))})
    except (BadPlan, NothingToResume) as error:
        usage(str(error))
    command = "" if resume and not name else _again(name, flags, plan, ray)
    with ExitStack() as open:
        if ray is None:
            executor = executor_of(plan)
        else:
            plan, executor = _placed(plan, ray, open)
            command = command and _again(name, flags, plan, ray)
        try:
            with Display(plan.budget) as display, Interruptible() as clock:
                before = signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
                try:
                    announce(plan, ray is not None)
                    result = Campaign(
                        plan,
                        out,
                        clock,
                        display,
                        executor,
                        now=now,
                        baseline=baseline,
                        resume=resume,
                        command=command,
                    ).run()
                    _render(result, out)
                finally:
                    signal.signal(signal.SIGTERM, before)
        except (Busy, NothingToResume, BadBaseline, BadHistory) as error:
            usage(str(error))
    summarize(result, out)
    raise typer.Exit(result.status)


def _render(result: CampaignResult, out: Path) -> None:
    """The page. If it cannot be written, that is said, and what was found counts all the same."""
    if not result.findings and not result.tally.operations:
        return
    try:
        render(result.to_json(), [finding.counterexample for finding in result.findings], out / "report.html")
    except OSError as error:
        result.complaint = result.complaint or f"cannot write {out / 'report.html'}: {error}"
        result.status = HARNESS if result.status == CLEAN else result.status


_OPTIONS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "targets": ("--target", ",".join),
    "profile": ("--profile", str),
    "shrink": ("--shrink", lambda seconds: f"{seconds:g}s"),
    "kernels": ("--kernels", lambda name: name or "none"),
    "trace": ("--trace", str),
    "devices": ("--devices", ",".join),
    "hang": ("--hang", lambda seconds: f"{seconds:g}s"),
    "memory": ("--memory", str),
    "properties": ("--properties", ",".join),
    "max_findings": ("--max-findings", str),
}
"""The flag for each of a plan's names that can be given by one, and its value as it is typed."""


def _again(name: str, flags: Mapping[str, Any], plan: CampaignPlan, ray: OnRay | None) -> str:
    """What to type to repeat a campaign that was given by `name` and `flags`: also its seed, its budget and as many
    workers, which may have been chosen for it."""
    words = ["python", "-m", "fuzz", "run", *(["--campaign", name] if name else [])]
    for flag, (option, typed) in _OPTIONS.items():
        if flags.get(flag) is not None:
            words += [option, typed(flags[flag])]
    for engine in flags.get("engines") or ():
        words += ["--engine", engine]
    if ray is not None:
        words += ["--engine", "ray", *(["--ray-address", ray.address] if ray.address else [])]
        words += ["--ray-gpus", f"{ray.gpus:g}"] * (ray.gpus > 0)
    for variant in flags.get("configurations") or ():
        words += ["--outside"] * variant.outside + ["--safety"] * (not variant.exact)
    if "devices" not in flags and not plan.in_process:  # one worker without a name would be none, but this process
        words += ["--workers", str(plan.processes if name or plan.processes > 1 else 0)]
    return shlex.join([*words, "--budget", f"{plan.budget:g}s", "--seed", plan.seed])
