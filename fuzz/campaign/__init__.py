"""Campaigns: what happens in a night.

In: a plan (targets, engines, configurations, a budget). Out: a folder with findings, a summary for machines and a
history. The command line starts it, and is told what happens through a `Show`.

A night, in its order:

    plan, plans                 what is to be run, from a TOML file and flags
    probe, checks               what its targets say of themselves; what of all properties that checks
    folder, journal             the folder that it writes to, and how far it is, for `--resume`
    campaign, pace              the loop: which task is next, and when nothing more is begun
    streams, queue, tasks       which units are hunted next; the other tasks; the values that tasks are made of
    executor                    what is asked of whatever runs tasks, and what comes back. Two answer to it:
    supervisor, spool           worker processes here, and the line that each writes before a unit
    cluster, place              a Ray cluster, and what runs on its machines
    worker, hunt, settle        what a worker does: it hunts, and shrinks and replays what it has found
    threads                     those that a target leaves behind
    crashes                     what a worker died of, done again with every operation on disk first
    triage                      hits become findings, with a status against the baseline
    outcome, summary            how it ended, and with which exit status; the summary that is read again later
    ci, history                 JUnit, Markdown and annotations; the memory of all campaigns in a folder
    compare                     the same campaign for several cores, side by side

Imports: fuzz.benchmarks, fuzz.engines, fuzz.findings, fuzz.runs, fuzz.show, properties, reference, rich.
"""
