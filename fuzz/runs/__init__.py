"""One run: a configuration and a list of operations on a fresh target.

In: a target factory, operations, a way of judging. Out: a `Run` (outcomes, events, perhaps a violation), or a
counterexample file.

`perform` runs it, `values` has what every room passes on, `counterexample` reads and writes files. `isolated` (what it
said: `replayed`) and `forked` do the same in a process of their own; `bisect` answers git. `status` has the exit
statuses, `quantities` times and sizes as people write them, `files` and `processes` what every writer and every worker
needs.

Everything else in `fuzz` builds on this room.

Imports: properties, reference.
"""
