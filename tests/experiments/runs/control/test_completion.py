"""Tab at the prompt: what can stand at each place of a line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pillarbox import topos
from pillarbox.experiments.runs.control.completion import (
    FORMS,
    completions_after_server,
    completions_of_argument,
)
from pillarbox.experiments.runs.control.verbs import VERBS
from tests.experiments.runs.control.test_commands import own_run, up

__all__ = ["own_run"]  # a fixture


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("path 0", ["0.0", "0.1"]),
        ("path 0.0 2", ["2.0", "2.1"]),
        ("path 0.0 2.1 ", ["all"]),
        ("cut 2.1-", ["2.1-s2", "2.1-1.1"]),
        ("cut s2-", ["s2-2.0", "s2-2.1"]),
        ("cut 2.1-s2 s", ["silent"]),
        ("heal s1", ["s1-1.0", "s1-1.1", "s1"]),
        ("heal a", ["all"]),
        ("stop ", ["s0", "s1", "s2"]),
        ("cable 2.1-s2 r", ["rate_mbit="]),
        ("run all-t", ["all-to-all"]),
        ("run broad", ["broadcast"]),
        ("run burst se", ["senders="]),
        ("run one-to-one du", ["duration_s="]),
        ("grow a", ["all"]),
        ("link 0.0 s0 ", ["up", "down"]),
        ("xterm 1", ["1.0", "1.1"]),
        ("load ", []),
        ("kill 0.0 ", []),
    ],
)
def test_words_follow_from_the_form_of_a_command(line: str, found: list[str]) -> None:
    first, *given = line.split(" ")
    form = VERBS[first].form if first in VERBS else FORMS[first]
    assert completions_of_argument(topos.parse("dcell,2,1"), form, given[:-1], given[-1]) == found


def test_every_form_completes() -> None:
    topology = topos.parse("dcell,2,1")
    for form in [*(verb.form for verb in VERBS.values()), *FORMS.values()]:
        for given in ([], ["0.0"], ["0.0", "0.1"]):
            assert all(
                isinstance(word, str) for word in completions_of_argument(topology, form, given, "")
            )


def test_a_program_follows_a_server_and_then_addresses() -> None:
    topology = topos.parse("dcell,2,1")
    assert "ls" in completions_after_server(topology, [], "l")
    assert "grep" in completions_after_server(topology, ["ls", "|"], "gre")
    assert completions_after_server(topology, ["ping"], "2.") == ["2.0", "2.1"]
    assert completions_after_server(topology, ["cat"], "/etc/passw")[0].startswith("/etc/passw")


@pytest.mark.root
def test_tab_completes_whole_words_at_a_terminal(own_run: Callable[[], None]) -> None:
    own_run()
    with up("dcell,2,1", "--plane", "python") as terminal:
        terminal.type("cut 2.1-s\t\n")
        terminal.shows("2.1-s2 is cut")
        terminal.shows("pillarbox> ")
        terminal.type("hea\t a\t\n")
        terminal.shows("2.1-s2 repaired")
        terminal.shows("pillarbox> ")
        terminal.type("1.\t\t")
        terminal.shows("1.0  1.1")
