"""One run: a configuration and a list of operations on a fresh target.

In: a target factory, operations, a way of judging. Out: a `Run` (outcomes, events, perhaps a violation), or a
counterexample file. `isolated` and `forked` do the same in a process of their own.

Everything else in `fuzz` builds on this package.

Imports: properties, reference.
"""
