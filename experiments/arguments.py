"""What commands take on the command line and how they answer: as text, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from topos.base.topology import Topology


class Spec(click.ParamType):  # type: ignore[type-arg] # generic from click 8.3 on only
    """A network on the command line, written as Mininet writes it."""

    name = "SPEC"

    def convert(self, value: Any, param: Any, ctx: Any) -> Topology:
        """Return the network, or fail in one line."""
        from topos.base.spec import parse

        return value if isinstance(value, Topology) else parse(value)


SPEC = Spec()
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)

network = click.argument("topology", metavar="SPEC", type=SPEC)
lab = click.option("--lab", "number", type=int, help="Which lab, where several are running.")
fail = click.option(
    "--fail", multiple=True, metavar="WHAT", help="As in `pillarbox path`; repeatable."
)
plane = click.option(
    "--plane", type=click.Choice(["auto", "python", "ebpf", "ovs"]), default="auto"
)
timers = click.option(
    "--timers", type=click.Choice(["fast", "paper"]), default="fast", show_default=True
)


def json_option(about: str = "One JSON object.") -> Callable[[Any], Any]:
    """Return the option ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help=about)


def answer(as_json: bool, data: Any, text: str, indent: int | None = None) -> None:
    """Print the data as JSON, or the text."""
    click.echo(json.dumps(data, indent=indent) if as_json else text)
