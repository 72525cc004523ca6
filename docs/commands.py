"""Writes docs/commands.md from the commands' own texts: ``.venv/bin/python docs/commands.py``."""

from __future__ import annotations

from pathlib import Path

from experiments.arguments import MORE, SCHEMA
from experiments.cli import cli
from experiments.manual import CommandEntry, entries

PAGE = Path(__file__).with_name("commands.md")
HEAD = f"""\
# Commands

Made by `.venv/bin/python docs/commands.py` from the texts that `--help` shows; `pillarbox setup
man` makes man pages of them, and `pillarbox setup completion` teaches shells their words.

`--json` prints one object. Its `schema` is {SCHEMA}, and is raised when a key means something else
or is no more; keys may come to it. `{MORE}` stands for keys that depend on what was asked: those
of records ([records.md](records.md)), or what a server knows.
"""


def page() -> str:
    """Return the page as it should be."""
    return "\n".join([HEAD, *map(_section, entries(cli, "pillarbox"))])


def _section(entry: CommandEntry) -> str:
    lines = [f"## {entry.name.partition(' ')[2]}", "", entry.text, "", f"`{entry.usage}`", ""]
    if entry.options:
        lines += ["| option | |", "|---|---|"]
        lines += [f"| `{_cell(name)}` | {_cell(about)} |" for name, about in entry.options]
        lines.append("")
    if entry.keys:
        lines += [f"JSON: {', '.join(f'`{key}`' for key in entry.keys)}", ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
