"""Parser of the text form of faults: ``cut 0.3-4.0 silent at 2 until 4``.

The prompt, the commands, ``--fail``, and experiments in TOML and in Python share this syntax.

    cut A-B [silent|one-way]    cut the cable between two nodes. silent: all frames are lost, and
                                ports keep their carrier. one-way: only frames from A to B are lost
    flap A-B SECONDS            let the carrier go and come back, again and again
    corrupt A-B RATE            let bits flip: ports discard frames with a wrong check sum
    duplicate A-B PERCENT       deliver some frames twice
    reorder A-B PERCENT [jitter MS]
                                deliver some frames this much later, after frames sent later
    kill A                      kill a server with all its programs
    stop SWITCH                 stop a switch
    rack SWITCH                 stop a switch and kill the servers plugged into it

``at`` and ``until`` are seconds after the flows of an experiment begin; without them a fault lasts
from the beginning to the end. `fault_kinds` has the table of kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pillarbox.hosts.base.fault_kinds import CABLE, FaultKind, amounts_of, fault_kind, kinds_of_verb
from pillarbox.topos.base.errors import PillarboxError, require

MOMENTS = ("at", "until")
# Verbs of the former syntax of faults, such as link:0.3-4.0, with their present form.
BEFORE = {"link": "cut", "server": "kill", "switch": "stop"}


class Fault(NamedTuple):
    """A planned fault of a lab: kind, names of its nodes, begin and end in seconds, and amounts.

    `what` are the nodes; `amounts` are the numbers that some kinds need, such as a bit error rate.
    """

    kind: str
    what: tuple[str, ...]
    at_s: float = 0.0
    until_s: float | None = None
    amounts: tuple[float, ...] = ()

    def __str__(self) -> str:
        """Return the fault in the text form that `read` parses.

        >>> str(Fault("silent cut", ("0.3", "4.0"), 2.0, 4.5))
        'cut 0.3-4.0 silent at 2 until 4.5'
        """
        kind = fault_kind(self.kind)
        at = f"at {self.at_s:.12g}" if self.at_s else ""
        until = "" if self.until_s is None else f"until {self.until_s:.12g}"
        amounts = kind.amount_words(self.amounts)
        words = [kind.verb, "-".join(self.what), kind.option, amounts, at, until]
        return " ".join(filter(None, words))

    @property
    def named(self) -> str:
        """Text form of the fault without ``at`` and ``until``."""
        return str(self._replace(at_s=0.0, until_s=None))


def kind_of(text: str) -> tuple[str, tuple[float, ...]]:
    """Return name and amounts of a kind of fault, from words such as ``cut silent``.

    >>> kind_of("cut silent")
    ('silent cut', ())
    >>> kind_of("duplicate 2")
    ('duplicate', (2.0,))
    """
    verb, *rest = text.split() or [""]
    kind, rest = _kind_and_rest(verb, rest)
    amounts, rest = amounts_of(kind, rest)
    require(not rest, f"{text!r} does not end with {' '.join(rest)!r}: write: {kind.words}")
    return kind.name, amounts


def _kind_and_rest(verb: str, words: list[str]) -> tuple[FaultKind, list[str]]:
    """Return the kind of fault of a verb and its option, and the words after the option."""
    known = {kind.option: kind for kind in kinds_of_verb(verb)}
    if words and words[0] in known:
        return known[words[0]], words[1:]
    return known[""], words


def read(text: str | Sequence[str]) -> Fault:
    """Return the planned fault parsed from a text such as ``cut 0.3-4.0 at 5``.

    >>> read("cut 0.3-4.0 silent at 2 until 4.5")
    Fault(kind='silent cut', what=('0.3', '4.0'), at_s=2.0, until_s=4.5, amounts=())
    >>> read("server:1.3")
    Traceback (most recent call last):
    pillarbox.topos.base.errors.PillarboxError: 'server:1.3' is written 'kill 1.3'
    """
    words = text.split() if isinstance(text, str) else list(text)
    whole = " ".join(words)
    before, colon, name = whole.partition(":")
    if colon and before in BEFORE:
        raise PillarboxError(f"{whole!r} is written '{BEFORE[before]} {name}'")
    verb = words[0] if words else ""
    kinds = kinds_of_verb(verb)
    require(len(words) > 1, f"write: {kinds[0].form}")
    what, rest = words[1], words[2:]
    if kinds[0].target == CABLE:
        apart = "-" not in what and rest and rest[0] not in (*_options(kinds), *MOMENTS)
        hint = " ".join([verb, "-".join(words[1:3]), *words[3:]])
        require(not apart, f"a cable is one word: {hint}")
    kind, rest = _kind_and_rest(verb, rest)
    amounts, rest = amounts_of(kind, rest)
    moments: dict[str, float] = {}
    while len(rest) > 1 and rest[0] in MOMENTS and rest[0] not in moments:
        moments[rest[0]] = _seconds(rest[1], whole)
        rest = rest[2:]
    form = f"{fault_form(verb)} [at S] [until S]"
    require(not rest, f"{whole!r} does not end with {' '.join(rest)!r}: write: {form}")
    nodes = ends_of(what) if kind.target == CABLE else (what,)
    return Fault(kind.name, nodes, moments.get("at", 0.0), moments.get("until"), amounts)


def fault_form(verb: str) -> str:
    """Return the text form of a verb's faults, with its options.

    >>> fault_form("cut")
    'cut A-B [silent|one-way]'
    """
    kinds = kinds_of_verb(verb)
    options = "|".join(_options(kinds))
    return f"{kinds[0].form} [{options}]" if options else kinds[0].form


def _options(kinds: Sequence[FaultKind]) -> list[str]:
    return [kind.option for kind in kinds if kind.option]


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
