"""Tests that any core must pass, given only a target factory: `pytest --pyargs properties.suite --target ...`.

The fixtures `target_factory`, `target_name` and `profile` come from the plugin. What a core has no capability for is
skipped, with the reason.

Imports: properties, hypothesis, pytest.
"""
