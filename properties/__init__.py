"""What must hold of a paged KV cache.

Operations are data; the Session applies them to a core and to the model side by side; targets are adapters.

Imports: reference, properties.laws, properties.operations, properties.targets.
"""
