"""`run`: reads the options of a campaign, places its workers, runs it, and ends with its exit status."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer
from rich.markup import escape

from properties.target import Capability

from ..campaign.campaign import Campaign
from ..campaign.cluster import NoCluster, NoRay, RayWorkers, connected
from ..campaign.executor import Executor, Making
from ..campaign.folder import Busy
from ..campaign.history import BadHistory
from ..campaign.journal import NothingToResume, journal_of
from ..campaign.outcome import CampaignResult
from ..campaign.plan import CampaignPlan, Variant
from ..campaign.plans import READY, BadPlan, overruled, plan_of, properties_of, ready
from ..campaign.probe import Probed, probe
from ..campaign.worker import executor_of, supervised
from ..engines.registry import ENGINES, UnknownEngine, described, engine_of, on_kernels, shares
from ..findings.baseline import BadBaseline
from ..runs.files import tried
from ..runs.status import CLEAN, HARNESS
from ..runs.trust import shipped
from ..show.page import drawn, render
from .again import again
from .common import (
    Interruptible,
    OutsideOption,
    SafetyOption,
    complaints,
    console,
    duration,
    kernels_of,
    memory_of,
    now,
    requests_of,
    usage,
)
from .display import Display, announce, summarize

__all__ = ["run"]


_ALL, _RAY = "all", "ray"
"""What may stand where an engine's name does."""


class Profile(str, Enum):
    nightly = "nightly"
    soak = "soak"


def run(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Option(help="A file of properties/targets (kvcore), or package.module:factory; several with commas."),
    ] = "kvcore",
    engine: Annotated[
        list[str] | None,
        typer.Option(
            metavar=f"[{'|'.join((_ALL, *ENGINES, _RAY))}]",
            help=f"An engine; may be repeated; the usual ones in turn without. {described()}. `ray` beside or without "
            "others: the workers are on a Ray cluster (an extra).",
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="Time to spend: 45s, 10m, 2h.")] = "45s",
    seed: Annotated[str, typer.Option(help="Repeat a campaign with this seed; a fresh one by default.")] = "",
    out: Annotated[Path, typer.Option(help="Folder for findings, summary.json and report.html.")] = Path("fuzz-out"),
    trace_file: Annotated[
        Path | None, typer.Option("--trace", help="Request trace for the trace engine; the built-in one by default.")
    ] = None,
    outside: OutsideOption = False,
    safety: SafetyOption = False,
    kernels: Annotated[
        str,
        typer.Option(
            help="What the engine `kernels` runs every step on: kvcore, package.module:factory, or none. "
            "auto is kvcore where torch and Triton are installed and the target shows its steps."
        ),
    ] = "auto",
    profile: Annotated[
        Profile, typer.Option(help="Hypothesis's runs: mostly of 50 steps, or for a long soak of 200.")
    ] = Profile.nightly,
    shrink: Annotated[str, typer.Option(help="Time to shrink a finding; 0 leaves it as found.")] = "10s",
    max_findings: Annotated[
        int,
        typer.Option(
            min=0, help="So many new findings end it; 0: none do. 1 without --campaign; with one, what its file says."
        ),
    ] = 1,
    go_on: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="With --max-findings: the part of the budget for which it goes on, since worse may lie behind. A "
            "quarter without --campaign and --max-findings.",
        ),
    ] = 0.25,
    name: Annotated[
        str, typer.Option("--campaign", help=f"A ready campaign ({', '.join(READY)}), or a TOML file; see docs.")
    ] = "",
    workers: Annotated[
        int,
        typer.Option(
            min=0, help="Processes, supervised; 0: one for each core. Without, what the campaign's file says, or 1."
        ),
    ] = 1,
    devices: Annotated[str, typer.Option(help="One worker for each of these CUDA devices, with commas: 0,1,2,3.")] = "",
    properties: Annotated[str, typer.Option(help="Only violations of these count, with commas; all by default.")] = "",
    memory: Annotated[str, typer.Option(help="Memory that a worker may write to: 4GiB; 0: no limit.")] = "",
    hang: Annotated[
        str, typer.Option(help="A worker that says nothing for so long (2m) is ended, and that is a finding.")
    ] = "",
    ray_address: Annotated[
        str,
        typer.Option(
            envvar="RAY_ADDRESS",
            help="With --engine ray: the cluster, as host:port or auto; without, one is started here.",
        ),
    ] = "",
    ray_gpus: Annotated[
        float, typer.Option(min=0.0, help="With --engine ray: GPUs of each worker; Ray says to each which.")
    ] = 0.0,
    database: Annotated[
        str,
        typer.Option(help="Hypothesis's database, shared by all workers: redis://host:port/0, or a folder."),
    ] = "",
    baseline: Annotated[
        Path | None, typer.Option(help="The file of known findings; baseline.json in --out by default.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the campaign in --out that was interrupted or killed.")
    ] = False,
) -> None:
    """Run a campaign: engines take turns on the target, every property is checked after every operation.

    The target runs in worker processes under supervision, or with --engine ray on a cluster, never in this one: what it
    does to its process is a finding. One seed does the same operations wherever it runs; docs/campaigns.md.

    Exit status: 0 clean, 1 a new finding, 2 usage, 3 the harness failed, 4 nothing executed, 5 only known findings, 130
    interrupted.

    Examples:

      python -m fuzz run

      python -m fuzz run --campaign nightly --budget 10m --workers 2 --out night

      python -m fuzz run --campaign night.toml --baseline fuzz/baseline.json --resume

      python -m fuzz run --budget 10m --engine walk --seed 7

      python -m fuzz run --budget 1h --engine hypothesis --profile soak

      python -m fuzz run --target my_package.adapter:make --outside

      python -m fuzz run --engine ray --ray-address head:6379 --workers 16 --campaign nightly

      python -m fuzz run --engine ray --engine walk --workers 2 --budget 5m
    """
    given = _given(context)
    on_ray = _RAY in (engine or ())
    engines = _engines(engine or ())
    if not on_ray and (wrong := given & {"ray_address", "ray_gpus"}):
        usage(f"--{min(wrong).replace('_', '-')} says where --engine ray has its workers; give that too")
    budget_seconds = duration(budget)
    flags: dict[str, Any] = {
        "targets": tuple(part.strip() for part in target.split(",")),
        "budget": budget_seconds,
        "seed": seed,
        "workers": workers,
        "profile": profile.value,
        "shrink": duration(shrink),
        "kernels": kernels,
        "trace": str(trace_file),
        "devices": tuple(part.strip() for part in devices.split(",")),
        "hang": duration(hang or "0"),
        "memory": memory_of(memory or "0"),
        "properties": _properties(properties),
        "max_findings": max_findings,
        "go_on": go_on,
        "database": database,
        "engines": dict.fromkeys(engines, 1.0),
        "configurations": (Variant("flags" if name else "", outside=outside, exact=not safety),),
    }
    chosen = {_NAMES.get(flag, flag) for flag in given}
    if not engines:
        chosen.discard("engines")
    if "trace_file" in given:
        requests_of(trace_file)
    try:
        tried(out)
    except OSError as error:
        usage(f"--out {out} cannot be written to: {error}; give another folder, or make room")
    base = CampaignPlan(
        "run",
        engines=_usual(),
        configurations=(Variant(""),),
        budget=budget_seconds,
        shrink=10.0,
        max_findings=1,
        go_on=0.0 if "max_findings" in given else 0.25,
        workers=0 if on_ray else 1,
    )
    overruling = {flag: value for flag, value in flags.items() if flag in chosen}
    plan, probed = _plan(name, overruling, out if resume else None, base)
    where = ("--engine", _RAY, *(("--ray-address", ray_address) if ray_address else ()))
    where = (*where, *(("--ray-gpus", f"{ray_gpus:g}") if ray_gpus else ())) if on_ray else ()
    with ExitStack() as open:
        executor = executor_of(plan)
        if on_ray:
            plan, executor = _placed(plan, "" if ray_address == "local" else ray_address, ray_gpus, open)
        command = "" if resume and not name else again(name, overruling, plan, where)
        result = _carry_out(plan, executor, out, baseline, resume, command, probed, on_ray)
    summarize(result, out)
    raise typer.Exit(result.status)


_NAMES = {
    "target": "targets",
    "trace_file": "trace",
    "engine": "engines",
    "outside": "configurations",
    "safety": "configurations",
}
"""What a plan calls the flags of another name."""


def _usual() -> dict[str, float]:
    """The engines of a run that names none, and their parts; one that is not installed is said and left out."""
    found = shares()
    for name in list(found):
        if found[name] and (missing := engine_of(name).missing()):
            complaints.print(f"[yellow]left out:[/] {escape(missing)}", soft_wrap=True)
            del found[name]
    return found


def _engines(names: Sequence[str]) -> tuple[str, ...]:
    """Those named, each once; none if all are meant."""
    found = tuple(dict.fromkeys(name for name in names if name not in (_ALL, _RAY)))
    for name in found:
        try:
            missing = engine_of(name).missing()
        except UnknownEngine as error:
            usage(f"--engine: {error}; {_ALL} and {_RAY} are words of their own")
        if missing:
            usage(missing)
    return () if _ALL in names else found


def _given(context: typer.Context) -> set[str]:
    """Names of the options that were on the command line."""
    sources = ((name, context.get_parameter_source(name)) for name in context.params)
    return {name for name, source in sources if source is not None and source.name == "COMMANDLINE"}


def _properties(text: str) -> tuple[str, ...]:
    try:
        return properties_of("--properties", [part.strip() for part in text.split(",") if part.strip()])
    except BadPlan as error:
        usage(str(error))


def _plan(
    name: str, flags: Mapping[str, Any], cut_short: Path | None, base: CampaignPlan
) -> tuple[CampaignPlan, dict[str, Probed]]:
    """The plan called `name`, or that of the campaign in the folder `cut_short`, or `base`, with `flags` that were
    given (by the plan's own names); and what its targets say of themselves. Exits with 2."""
    try:
        plan = ready(name) if name else base
        if cut_short is not None:
            journal = journal_of(cut_short)
            if flags.get("seed", journal["seed"]) != journal["seed"]:
                usage(f"--seed {flags['seed']}: what is gone on with has the seed {journal['seed']}; leave --seed out")
            plan = replace(plan if name else plan_of(journal["plan"]), seed=journal["seed"])
            if not name:
                _named(cut_short, plan, flags)
        plan = overruled(plan, flags)
        used = on_kernels(engine for engine, share in plan.engines.items() if share > 0)
        kernels = (plan.kernels or "none") if used else "none"
        if kernels not in ("auto", "none"):
            kernels_of(kernels)  # before any target: from here on Triton interprets, in all processes of this run
        probed = probe(plan.targets)
        bad = [one.error for one in probed.values() if one.error]
        if len(bad) == len(probed):
            usage("; ".join(bad))
        for error in bad:
            complaints.print(f"[red]error:[/] {escape(error)}; the other targets run", soft_wrap=True)
        plan = replace(plan, kernels=_kernels(kernels, {name: one for name, one in probed.items() if not one.error}))
        return overruled(plan, {"seed": plan.seed or str(secrets.randbits(32))}), probed
    except (BadPlan, NothingToResume) as error:
        usage(str(error))


def _named(out: Path, plan: CampaignPlan, flags: Mapping[str, Any]) -> None:
    """Exits with 2 if what is gone on with would import what neither comes with this tool nor is given: a folder may be
    somebody else's."""
    if strange := [one for one in plan.targets if not shipped(one) and one not in flags.get("targets", ())]:
        usage(f"{out} names {', '.join(strange)}, which would be imported; say so: --target {','.join(plan.targets)}")
    if not shipped(plan.kernels) and "kernels" not in flags:
        usage(f"{out} names {plan.kernels}, which would be imported; say so: --kernels {plan.kernels}")


def _kernels(name: str, probed: Mapping[str, Probed]) -> str:
    """The kernels to run steps of these targets on, "" for none. Exits with 2 if they were asked for and cannot be."""
    found = kernels_of(name, all(Capability.BATCH in one.inside for one in probed.values()))
    if not found:
        return ""
    for target, one in probed.items():
        if one.hindrance and name != "auto":
            usage(f"--kernels {name}: kernels cannot be interpreted beside {target}, which {one.hindrance}")
        if one.hindrance:
            said = f"no kernels are run beside the allocator: {target} {one.hindrance}"
            complaints.print(f"[yellow]left out:[/] {escape(said)}", soft_wrap=True)
            return ""
    return found


def _placed(plan: CampaignPlan, address: str, gpus: float, open: ExitStack) -> tuple[CampaignPlan, Making]:
    """The plan with as many workers as it will have on the Ray at `address` ("": one is started here), and what makes
    them. Exits with 2 or 3."""
    if plan.devices:
        usage("devices are of this machine; with --engine ray give --ray-gpus, the GPUs of each worker")
    try:
        cluster = open.enter_context(connected(address, plan.processes))
    except NoRay as error:
        usage(str(error))
    except NoCluster as error:
        complaints.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(HARNESS) from None
    room = cluster.room(gpus)
    plan = replace(plan, workers=plan.workers or max(1, room))
    if room < plan.workers:
        each = f"a CPU and {gpus:g} GPUs" if gpus else "a CPU"
        if cluster.own:
            usage(f"{plan.workers} workers with {each} each, and this machine has room for {room}")
        console.print(
            f"[yellow]the Ray cluster has room for {room} of {plan.workers} workers now ({each} each); the others wait "
            "until it has grown[/]",
            soft_wrap=True,
        )

    def workers(spool: Path) -> Executor:
        make = partial(supervised, memory=plan.memory, hang=plan.hang)
        return RayWorkers(cluster, plan.processes, monotonic, make, gpus=gpus, hang=plan.hang)

    return plan, workers


def _carry_out(
    plan: CampaignPlan,
    executor: Making,
    out: Path,
    baseline: Path | None,
    resume: bool,
    command: str,
    probed: Mapping[str, Probed],
    on_ray: bool,
) -> CampaignResult:
    """Run it, with the terminal told, and write its page. Ctrl-C and SIGTERM end it with what it has. Exits with 2."""
    try:
        with Display(plan.budget) as display, Interruptible() as clock:
            before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)}
            for one, handler in before.items():
                if handler is not signal.SIG_IGN:  # as nohup has it
                    signal.signal(one, signal.getsignal(signal.SIGINT))
            try:
                announce(plan, on_ray)
                campaign = Campaign(
                    plan,
                    out,
                    clock,
                    display,
                    executor,
                    now=now,
                    baseline=baseline,
                    resume=resume,
                    command=command,
                    probed=probed,
                )
                result = campaign.run()
                _render(result, out)
                return result
            finally:
                for one, handler in before.items():
                    signal.signal(one, handler)
    except (Busy, NothingToResume, BadBaseline, BadHistory) as error:
        usage(str(error))


def _render(result: CampaignResult, out: Path) -> None:
    """The page. If it cannot be written, that is said, and what was found counts all the same."""
    if not result.findings and not result.tally.operations:
        return
    try:
        found = [finding.counterexample for finding in result.findings]
        pictures = drawn(found, result.plan.targets, (result.plan.kernels,))
        render(result.to_json(), found, out / "report.html", pictures)
    except OSError as error:
        result.complaint = result.complaint or f"cannot write {out / 'report.html'}: {error}"
        result.status = HARNESS if result.status == CLEAN else result.status
