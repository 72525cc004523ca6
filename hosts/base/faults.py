"""Parser of the text form of faults: ``cut 0.3-4.0 silent at 2 until 4``.

The prompt, the commands, ``--fail``, and experiments in TOML and in Python share this syntax.

    cut A-B [silent]    cut the cable between two nodes; silent: ports keep their carrier
    kill A              kill a server with all its programs
    stop SWITCH         stop a switch
    rack SWITCH         stop a switch and kill the servers plugged into it

``at`` and ``until`` are seconds after the flows of an experiment begin; without them a fault lasts
from the beginning to the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from topos.base.errors import PillarboxError, meant, require

SILENT = "silent"
# Verbs in a fault's text form, each with the kind of fault in records and logs.
KINDS = {
    "cut": "cut",
    f"cut {SILENT}": "silent cut",
    "kill": "server",
    "stop": "switch",
    "rack": "rack",
}
FORMS = {"cut": "cut A-B", "kill": "kill A", "stop": "stop SWITCH", "rack": "rack SWITCH"}
MOMENTS = ("at", "until")
# Verbs of the former syntax of faults, such as link:0.3-4.0, with their present form.
BEFORE = {"link": "cut", "server": "kill", "switch": "stop"}


class Fault(NamedTuple):
    """A planned fault of a lab: kind, names of its nodes (`what`), begin and end in seconds."""

    kind: str
    what: tuple[str, ...]
    at_s: float = 0.0
    until_s: float | None = None

    def __str__(self) -> str:
        """Return the fault in the text form that `read` parses.

        >>> str(Fault("silent cut", ("0.3", "4.0"), 2.0, 4.5))
        'cut 0.3-4.0 silent at 2 until 4.5'
        """
        verb, _, silent = verb_of(self.kind).partition(" ")
        at = f"at {self.at_s:.12g}" if self.at_s else ""
        until = "" if self.until_s is None else f"until {self.until_s:.12g}"
        return " ".join(filter(None, [verb, "-".join(self.what), silent, at, until]))

    @property
    def named(self) -> str:
        """Text form of the fault without ``at`` and ``until``."""
        return str(self._replace(at_s=0.0, until_s=None))


def verb_of(kind: str) -> str:
    """Return the verb of a kind of fault: ``cut silent`` for ``silent cut``."""
    return {known: verb for verb, known in KINDS.items()}[kind]


def kind_of(verb: str) -> str:
    """Return the kind of fault that a verb stands for, or raise PillarboxError."""
    if verb in KINDS:
        return KINDS[verb]
    before = {kind: verb for verb, kind in KINDS.items()}.get(verb)
    hint = f"did you mean {before}?" if before else meant(verb, KINDS)
    raise PillarboxError(f"there is no fault {verb!r}: {hint}")


def read(text: str | Sequence[str]) -> Fault:
    """Return the planned fault parsed from a text such as ``cut 0.3-4.0 at 5``.

    >>> read("cut 0.3-4.0 silent at 2 until 4.5")
    Fault(kind='silent cut', what=('0.3', '4.0'), at_s=2.0, until_s=4.5)
    >>> read("server:1.3")
    Traceback (most recent call last):
    topos.base.errors.PillarboxError: 'server:1.3' is written 'kill 1.3'
    """
    words = text.split() if isinstance(text, str) else list(text)
    whole = " ".join(words)
    before, colon, name = whole.partition(":")
    if colon and before in BEFORE:
        raise PillarboxError(f"{whole!r} is written '{BEFORE[before]} {name}'")
    verb = words[0] if words else ""
    kind = kind_of(verb)
    require(len(words) > 1, f"write: {FORMS[verb]}")
    what, rest = words[1], words[2:]
    if verb == "cut":
        apart = "-" not in what and rest and rest[0] not in (SILENT, *MOMENTS)
        hint = " ".join(["cut", "-".join(words[1:3]), *words[3:]])
        require(not apart, f"a cable is one word: {hint}")
        if rest[:1] == [SILENT]:
            kind, rest = kind_of(f"{verb} {SILENT}"), rest[1:]
    moments: dict[str, float] = {}
    while len(rest) > 1 and rest[0] in MOMENTS and rest[0] not in moments:
        moments[rest[0]] = _seconds(rest[1], whole)
        rest = rest[2:]
    form = f"{FORMS[verb]}{' [silent]' if verb == 'cut' else ''} [at S] [until S]"
    require(not rest, f"{whole!r} does not end with {' '.join(rest)!r}: write: {form}")
    nodes = ends_of(what) if verb == "cut" else (what,)
    return Fault(kind, nodes, moments.get("at", 0.0), moments.get("until"))


def ends_of(cable: str) -> tuple[str, str]:
    """Return the names of the two nodes of a cable such as ``0.3-4.0``."""
    a, dash, b = cable.partition("-")
    require(
        bool(a and dash and b), f"{cable!r} is no cable: write its two ends, as 0.3-4.0 or 0.3-s2"
    )
    return a, b


def _seconds(text: str, whole: str) -> float:
    try:
        return float(text.removesuffix("s"))
    except ValueError:
        raise PillarboxError(f"{text!r} in {whole!r} is no number of seconds") from None
