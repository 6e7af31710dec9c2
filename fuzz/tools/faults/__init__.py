"""Faults on purpose: a broken target, a full disk, a hostile file; and what the user sees of each.

    python -m fuzz.tools.faults             all of them, as a table; status 1 if one went wrong
    python -m fuzz.tools.faults --quick     those that take a second or two; `make test` runs them as well

In: nothing but this checkout. Out: a row for each fault: what was done, what came of it, and whether that was right. It
is wrong if a night was green that was not, a finding was false, or anything was lost.

`fault` is what a fault is and the place in which it is tried; `table` runs them all. The other files are the faults, by
what goes wrong:

    targets    a target ends its process, hangs, is interrupted, leaves threads or prints without end
    disk       a disk is full or read-only, a folder is in use, a name is taken
    blame      a target answers wrongly or cannot be made: toy adapters with one mistake each
    kernels    a kernel stores wildly, skips keys, hangs or dies
    worst      a finding leads to worse, two bugs are in one core, one bug shows in many ways
    behind     a shallow mistake stands in front of a harmful one, for each engine
    files      a file that somebody else wrote is hostile or damaged
    recorder   an engine is killed, or its disk is full, while its operations are recorded
    counted    what bookkeeping does not show: counters, memory, namespaces that collide, padding, keys
    names      a user's own files, environment or terminal are in the way
    pages      a page of a large or hostile finding

A new fault is a function there; a new file is a line of `table.KINDS`.

Imports: fuzz, rich, typer.
"""
