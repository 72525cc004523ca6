"""What commands take and answer, and man pages of it: from their own texts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib.metadata import version
from typing import NamedTuple

import click

from experiments.arguments import JsonOption


class CommandEntry(NamedTuple):
    """A command: its words, how it is used, and what it is for."""

    name: str
    usage: str
    text: str
    examples: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]


def entries(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[CommandEntry]:
    """Yield all commands below one, by name; a group without a meaning of its own is left out."""
    ctx = click.Context(command, info_name=name, parent=parent)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield _entry(command, ctx)
    if isinstance(command, click.Group):
        for below in command.list_commands(ctx):
            found = command.get_command(ctx, below)
            assert found is not None
            if not found.hidden:
                yield from entries(found, below, ctx)


def _entry(command: click.Command, ctx: click.Context) -> CommandEntry:
    text, _, examples = inspect.cleandoc(command.help or "").partition("\b\n")
    own = [param for param in command.params if isinstance(param, click.Option)]
    options = [param.get_help_record(ctx) for param in own]
    return CommandEntry(
        ctx.command_path,
        " ".join(filter(None, [ctx.command_path, *command.collect_usage_pieces(ctx)])),
        " ".join(text.split()),
        tuple(line.strip() for line in examples.split("\n\n")[0].splitlines() if line.strip()),
        tuple(record for record in options if record),
        tuple(key for one in own if isinstance(one, JsonOption) for key in one.keys),
    )


def as_man(entry: CommandEntry) -> str:
    """Return a man page, in troff's macros."""
    name = entry.name.replace(" ", "-")
    lines = [
        f'.TH "{name.upper()}" 1 "" "Pillarbox {version("pillarbox")}" "Pillarbox"',
        ".SH NAME",
        f"{_roff(name)} \\- {_roff(entry.text.split('. ')[0].rstrip('.'))}",
        ".SH SYNOPSIS",
        _roff(entry.usage),
        ".SH DESCRIPTION",
        _roff(entry.text),
    ]
    if entry.options:
        lines.append(".SH OPTIONS")
        for option, about in entry.options:
            lines += [".TP", f"\\fB{_roff(option)}\\fR", _roff(about)]
    if entry.keys:
        lines += [".SH JSON", _roff(f"With --json: schema, {', '.join(entry.keys)}")]
    if entry.examples:
        lines += [".SH EXAMPLES", ".nf", *map(_roff, entry.examples), ".fi"]
    return "\n".join([*lines, ""])


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
