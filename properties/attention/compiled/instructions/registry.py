"""Instructions by name."""

from __future__ import annotations

from collections.abc import Callable

from ..machine import Act, Site

__all__ = ["Builder", "build", "instruction", "only"]

Builder = Callable[[Site], Act]

_BUILDERS: dict[str, Builder] = {}


def instruction(*names: str) -> Callable[[Builder], Builder]:
    """Registers a function for opcodes that begin with these parts."""

    def register(builder: Builder) -> Builder:
        for name in names:
            _BUILDERS[name] = builder
        return builder

    return register


def build(site: Site) -> Act:
    """Raises Unsupported."""
    if site.instruction.opcode.startswith(("bra", "ret")):
        return lambda group, mask: None  # the machine's own
    parts = site.instruction.parts
    for count in range(len(parts), 0, -1):
        if builder := _BUILDERS.get(".".join(parts[:count])):
            return builder(site)
    raise site.instruction.refuse()


def only(site: Site, *known: str) -> None:
    """Refuse an instruction that has other modifiers, between its name and its last part."""
    for part in site.instruction.parts[1:-1]:
        if part not in known:
            raise site.instruction.refuse(f"modifier .{part}")
