"""What commands take on the command line: a network, written as Mininet writes it."""

from __future__ import annotations

from typing import Any

import click

from topos.base.topology import Topology


class Spec(click.ParamType):  # type: ignore[type-arg] # generic from click 8.3 on only
    """A network on the command line."""

    name = "SPEC"

    def convert(self, value: Any, param: Any, ctx: Any) -> Topology:
        """Return the network, or fail in one line."""
        from topos.base.spec import parse

        return value if isinstance(value, Topology) else parse(value)


SPEC = Spec()
