"""A core to begin with: `toy` has a bug, and its adapter is what docs/your-core.md shows.
`python -m fuzz example` prints it.

It is a user's file: nothing of ours imports it, and it is untyped, as a first adapter is.

Imports: properties, reference.
"""
