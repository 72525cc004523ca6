"""Writes docs/commands.md from the commands' own texts: ``.venv/bin/python docs/commands.py``."""

from __future__ import annotations

from pathlib import Path

from experiments.cli import cli
from experiments.manual import as_markdown, entries

PAGE = Path(__file__).with_name("commands.md")


def page() -> str:
    """Return the page as it should be."""
    return as_markdown(list(entries(cli, "pillarbox")))


if __name__ == "__main__":
    PAGE.write_text(page())
