"""The prompt's verbs as commands for other terminals, with the same arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from pillarbox.experiments.base.arguments import answer, complete, json_option, lab
from pillarbox.experiments.lab.emulation import lab_registry
from pillarbox.experiments.runs.control.client import ask
from pillarbox.experiments.runs.control.verbs import VERBS


def asked(number: int | None, verb: str, words: Iterable[str]) -> tuple[dict[str, Any], str]:
    """Send a command such as ``cut`` to a running lab; return the answer as data and text."""
    found = ask(lab_registry.folder_of(number), ask=verb, words=list(words))
    said = found.pop("said")
    return found, said


def command_of(verb: str) -> click.Command:
    """Return the command-line command that runs a verb, such as ``cut``, in a running lab."""
    form, about, keys = VERBS[verb].form, VERBS[verb].about, VERBS[verb].keys

    takes = form.partition(" ")[2]
    text = f"{about[0].upper()}{about[1:]}.\n\nAs at the prompt of a running lab: {form}."

    @click.command(name=verb, help=text)
    @click.argument("words", metavar=takes, nargs=-1, shell_complete=complete("nodes"))
    @lab
    @json_option(*keys)
    def command(words: tuple[str, ...], number: int | None, as_json: bool) -> None:
        answer(as_json, *asked(number, verb, words))

    return command
