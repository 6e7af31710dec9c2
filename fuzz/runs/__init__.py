"""One run: a configuration and a list of operations on a fresh target.

In: a target factory, operations, a way of judging. Out: a `Run` (outcomes, events, perhaps a violation), or a
counterexample file.

`perform` runs it, `values` has what every room passes on, `counterexample` reads and writes files. `status` has the
exit statuses, `quantities` times and sizes as people write them, `files` what every writer needs, `bounds` what a
reader accepts at most, `trust` whether what a file names may be imported, `foreign` how a text of
somebody else's is shown.
`believe` says what a target has instead of what was asked of it.

What a target does to its process must not happen to the one whose exit status people act on:

    child       a function in a process of its own
    forked      a run in a process that is forked for it; the shrinker uses it on crashes
    isolated    a replay, and what it said (`replayed`); `bisect` makes an answer to git of it
    guard       a whole command
    recording   every operation is written down before it is applied, for the process that dies of it
    processes   how such processes begin and end; `output` is what they print

Everything else in `fuzz` builds on this room.

Imports: properties, reference.
"""
