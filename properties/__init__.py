"""What must hold of a paged KV cache.

In: operations, and a target. Out: a violation, or nothing, with counts of what was checked.

`operations` are data, as a target's `configuration` is; `moves` draw them, `machines` let Hypothesis draw them.
`target` says what a core must offer, `targets` are adapters; `boundary` checks what they return. `session` applies
operations to a target and to the model side by side; `laws` compare their bookkeeping, `footprint` counts what a core
holds, and `keys` compares those of two processes; `coverage`, `ledger` and `state_coverage` say what a run has checked
and met. `attention` has the properties of kernels, `suite` the tests that any core must pass; `plugin` gives them to
pytest. `stack` keeps long loops fast.

`fuzz` uses this package.

Imports: reference, properties.laws, properties.operations, properties.targets.
"""
