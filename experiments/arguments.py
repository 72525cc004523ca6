"""What commands take on the command line and how they answer: as text, or as JSON."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from hosts.linux.rights import take_role
from topos.base.errors import require
from topos.base.topology import Topology

# Object of the click context of a process that runs one command and ends.
OWN_PROCESS = "own process"


def complete(what: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what click asks to complete a word, by its name in `experiments.completing`.

    That stands above all that it asks, and so is imported when a shell asks.
    """

    def completed(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
        known = getattr(importlib.import_module("experiments.completing"), what)
        found: list[str] = known(ctx, param, begun)
        return found

    return completed


def take_role_as_root(role: str, readable: Sequence[Path] = ()) -> None:
    """Give up the rights that root needs no more, in a process that runs one command and ends."""
    ctx = click.get_current_context(silent=True)
    if ctx and ctx.find_root().obj == OWN_PROCESS and os.geteuid() == 0:
        take_role(role, readable)


class Group(click.Group):
    """A group whose help shows each subcommand's summary whole: click would cut it off."""

    sections: Mapping[str, Sequence[str]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands' names and summaries, by sections where there are some."""
        for title, names in (self.sections or {"Commands": self.list_commands(ctx)}).items():
            found = ((name, self.get_command(ctx, name)) for name in names)
            with formatter.section(title):
                formatter.write_dl([(n, one.get_short_help_str(WHOLE)) for n, one in found if one])


class Spec(click.ParamType):  # type: ignore[type-arg] # generic from click 8.3 on only
    """A network on the command line, written as Mininet writes it."""

    name = "SPEC"

    def convert(self, value: Any, param: Any, ctx: Any) -> Topology:
        """Return the network, or fail in one line."""
        from topos.base.spec import parse

        return value if isinstance(value, Topology) else parse(value)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        """Return examples of networks."""
        from topos.base.spec import kinds, network

        known = (spec for kind in kinds() for spec in network(kind).examples)
        return [CompletionItem(spec) for spec in known if spec.startswith(incomplete)]


class Weights(click.ParamType):  # type: ignore[type-arg] # generic from click 8.3 on only
    """Whole numbers behind one another: ``2,1,1``."""

    name = "WEIGHTS"

    def convert(self, value: object, param: object, ctx: object) -> tuple[int, ...]:
        """Return the numbers, or fail in one line."""
        if isinstance(value, tuple):
            return value
        words = str(value).split(",")
        require(
            all(word.isascii() and word.isdecimal() for word in words),
            f"{value!r} are no weights: write one whole number a machine, such as 2,1,1",
        )
        return tuple(map(int, words))


SPEC = Spec()
SCHEMA = 1  # of what --json prints: raised when a key means something else, or is no more
MORE = "..."
WHOLE = 1000  # characters: more than a summary has
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)

network = click.argument("topology", metavar="SPEC", type=SPEC)
lab = click.option(
    "--lab",
    "number",
    type=int,
    shell_complete=complete("labs"),
    help="Number of the lab, if several are running.",
)
fail = click.option(
    "--fail",
    multiple=True,
    metavar="WHAT",
    help="Fault: 'cut A-B', 'kill A', 'stop SWITCH' or 'rack SWITCH'. Repeatable.",
)
plane = click.option(
    "--plane",
    type=click.Choice(["auto", "python", "ebpf", "ovs"]),
    default="auto",
    show_default=True,
    help="Data plane. ovs: Open vSwitch, for networks whose servers do not relay.",
)
listen_option = click.option(
    "--listen",
    default="",
    metavar="ADDRESS[:PORT]",
    help="Address the page listens on (default: 127.0.0.1). On other addresses it uses TLS.",
)
plain_http_option = click.option(
    "--plain-http",
    is_flag=True,
    help="Serve the page without TLS on a network: others on it can read the page's token.",
)
terminals_option = click.option(
    "--terminals",
    is_flag=True,
    help="Permit terminals on servers also if the page is reached over a network.",
)
weights_option = click.option(
    "--weights",
    type=Weights(),
    default=(),
    help="Relative capacities of the machines, such as 2,1,1.",
)
timers = click.option(
    "--timers",
    type=click.Choice(["fast", "paper"]),
    default="fast",
    show_default=True,
    help="Timers for failure detection: the fastest reliable ones, or the papers'.",
)


def routing_option(
    *name: str,
    about: str = "Routing (default: the network's own).",
    metavar: str = "NAME",
    **settings: Any,
) -> Callable[[Any], Any]:
    """Return the option ``--routing``, which shells complete."""
    known = complete("routings")
    return click.option(
        "--routing", *name, metavar=metavar, help=about, shell_complete=known, **settings
    )


class JsonOption(click.Option):
    """The option ``--json``, which knows what the answer holds; MORE: and further keys."""

    def __init__(self, *words: Any, keys: Sequence[str], **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.keys = keys


def json_option(*keys: str) -> Callable[[Any], Any]:
    """Return the option ``--json`` of a command that answers with these keys."""
    about = "Print one JSON object."
    return click.option("--json", "as_json", cls=JsonOption, keys=keys, is_flag=True, help=about)


def answer(as_json: bool, data: dict[str, Any], text: str, indent: int | None = None) -> None:
    """Print the data as JSON, with the version of its schema, or the text."""
    if not as_json:
        click.echo(text)
        return
    declared = [
        key
        for option in click.get_current_context().command.params
        if isinstance(option, JsonOption)
        for key in option.keys
    ]
    unknown = set(data) - set(declared)
    assert not unknown or MORE in declared, f"keys that json_option does not name: {unknown}"
    click.echo(json.dumps({"schema": SCHEMA, **data}, indent=indent))
