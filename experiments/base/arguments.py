"""Shared options and arguments of commands, and their output as text or JSON."""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from pillarbox.hosts.linux.rights import take_role
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

# Marks the click context of a process that runs a single command and ends.
OWN_PROCESS = "own process"


def complete(name: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return click's completion function of an argument, by name in
    `pillarbox.experiments.cli.completing`.

    That module has many dependencies, so it is imported only when a shell completes a word.
    """

    def completed(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
        completion = getattr(importlib.import_module("pillarbox.experiments.cli.completing"), name)
        words: list[str] = completion(ctx, param, begun)
        return words

    return completed


def take_role_as_root(role: str, readable: Sequence[Path] = ()) -> None:
    """Drop root privileges that a command does not need, if the process runs only this command."""
    ctx = click.get_current_context(silent=True)
    if ctx and ctx.find_root().obj == OWN_PROCESS and os.geteuid() == 0:
        take_role(role, readable)


class Group(click.Group):
    """A command group whose help shows the whole summary of each subcommand (click cuts it)."""

    sections: Mapping[str, Sequence[str]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and summaries of the subcommands to the help, by section."""
        for title, names in (self.sections or {"Commands": self.list_commands(ctx)}).items():
            found = ((name, self.get_command(ctx, name)) for name in names)
            with formatter.section(title):
                formatter.write_dl([(n, one.get_short_help_str(WHOLE)) for n, one in found if one])


class Spec(click.ParamType):  # type: ignore[type-arg] # generic from click 8.3 on only
    """Parameter type of a network on the command line, in Mininet's notation: ``bcube,4,1``."""

    name = "SPEC"

    def convert(self, value: Any, param: Any, ctx: Any) -> Topology:
        """Parse a network's text to its topology, or raise PillarboxError."""
        from pillarbox.topos.base.spec import parse

        return value if isinstance(value, Topology) else parse(value)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        """Return example networks, such as ``bcube,4,1``, that begin with the incomplete word."""
        from pillarbox.topos.base.spec import kinds, network

        known = (spec for kind in kinds() for spec in network(kind).examples)
        return [CompletionItem(spec) for spec in known if spec.startswith(incomplete)]


class Weights(click.ParamType):  # type: ignore[type-arg] # generic from click 8.3 on only
    """Parameter type of machine weights: integers separated by commas, ``2,1,1``."""

    name = "WEIGHTS"

    def convert(self, value: object, param: object, ctx: object) -> tuple[int, ...]:
        """Parse weights to a tuple of integers, or raise PillarboxError."""
        if isinstance(value, tuple):
            return value
        words = str(value).split(",")
        require(
            all(word.isascii() and word.isdecimal() for word in words),
            f"{value!r} are not weights: write one integer per machine, such as 2,1,1",
        )
        return tuple(map(int, words))


class NumberRange(click.FloatRange):
    """Parameter type of a number within bounds; refuses nan and inf, which FloatRange accepts."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the finite number, or raise click's error for a bad parameter."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


SPEC = Spec()
SCHEMA = 2  # Version of --json output; increased when a key is removed or changes its meaning.
MORE = "..."  # Placeholder for further keys in the help of a command's --json output.
WHOLE = 1000  # Length limit of summaries in the help, in characters: longer than any summary.
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
STANDARD_OUTPUT = Path("-")  # value of a FILE for standard output, in commands that accept it

network = click.argument("topology", metavar="SPEC", type=SPEC)
lab = click.option(
    "--lab",
    "number",
    type=int,
    shell_complete=complete("labs"),
    help="Number of the lab, if several are running.",
)
on_option = click.option(
    "--on", "chosen", metavar="ADDR,...", help="Servers to run the program on (default: all)."
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
kit_option = click.option(
    "--kit",
    type=click.Choice(["os-ken", "ryu"]),
    callback=lambda _ctx, _param, kit: kit or "",
    help="Framework of the OpenFlow controller (default: your application's, or os-ken).",
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
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Seed of all random choices.",
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
    """Return the click option ``--routing``, with shell completion of routing names."""
    known = complete("routings")
    return click.option(
        "--routing", *name, metavar=metavar, help=about, shell_complete=known, **settings
    )


class JsonOption(click.Option):
    """The click option ``--json`` with the keys of the output; MORE stands for further keys."""

    def __init__(self, *words: Any, keys: Sequence[str], **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.keys = keys


def json_option(*keys: str) -> Callable[[Any], Any]:
    """Return the click option ``--json``; its help lists the keys of the command's JSON output."""
    about = "Print one JSON object."
    return click.option("--json", "as_json", cls=JsonOption, keys=keys, is_flag=True, help=about)


def answer(as_json: bool, data: dict[str, Any], text: str, indent: int | None = None) -> None:
    """Print a command's result: the data as JSON with the schema version, or the text."""
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
