"""Developers' tools: what is run by hand or by a make target, and is not installed with the package.

`faults` (everything that may go wrong, on purpose), `gates` (what the compiler makes of the kernels), `mutants`
(mutation tests), `entries` (how many findings one bug makes), `kernel_layers`, `explore_zoo` and `survey` (generated
pages), `screenshots`, `make_trace`.

Tools know everything. Nothing but tests knows them.

Imports: fuzz, properties, reference, hypothesis, torch, typer.
"""
