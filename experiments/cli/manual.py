"""Usage, options and JSON keys of all commands, read from the commands, and their man pages."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib.metadata import version
from typing import NamedTuple

import click

from pillarbox.experiments.base.arguments import JsonOption


class CommandEntry(NamedTuple):
    """Manual entry of a command: name, usage, description, examples, options and JSON keys."""

    name: str
    usage: str
    text: str
    examples: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]


def entries(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[CommandEntry]:
    """Yield the entries of a command and its subcommands; groups that run nothing are left out."""
    ctx = click.Context(command, info_name=name, parent=parent)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield _command_entry(command, ctx)
    if isinstance(command, click.Group):
        for subcommand in command.list_commands(ctx):
            found = command.get_command(ctx, subcommand)
            assert found is not None
            if not found.hidden:
                yield from entries(found, subcommand, ctx)


def _command_entry(command: click.Command, ctx: click.Context) -> CommandEntry:
    text, _, examples = inspect.cleandoc(command.help or "").partition("\b\n")
    option_params = [param for param in command.params if isinstance(param, click.Option)]
    options = [param.get_help_record(ctx) for param in option_params]
    return CommandEntry(
        ctx.command_path,
        " ".join(filter(None, [ctx.command_path, *command.collect_usage_pieces(ctx)])),
        " ".join(text.split()),
        tuple(line.strip() for line in examples.split("\n\n")[0].splitlines() if line.strip()),
        tuple(record for record in options if record),
        tuple(key for one in option_params if isinstance(one, JsonOption) for key in one.keys),
    )


def as_man(entry: CommandEntry) -> str:
    """Return the man page of a command, in troff's macros."""
    name = entry.name.replace(" ", "-")
    lines = [
        f'.TH "{name.upper()}" 1 "" "Pillarbox {version("pillarbox")}" "Pillarbox"',
        ".SH NAME",
        f"{_troff_text(name)} \\- {_troff_text(entry.text.split('. ')[0].rstrip('.'))}",
        ".SH SYNOPSIS",
        _troff_text(entry.usage),
        ".SH DESCRIPTION",
        _troff_text(entry.text),
    ]
    if entry.options:
        lines.append(".SH OPTIONS")
        for option, about in entry.options:
            lines += [".TP", f"\\fB{_troff_text(option)}\\fR", _troff_text(about)]
    if entry.keys:
        lines += [".SH JSON", _troff_text(f"With --json: schema, {', '.join(entry.keys)}")]
    if entry.examples:
        lines += [".SH EXAMPLES", ".nf", *map(_troff_text, entry.examples), ".fi"]
    return "\n".join([*lines, ""])


def _troff_text(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
