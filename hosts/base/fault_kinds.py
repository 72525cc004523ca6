"""The kinds of faults that a lab can inject, in one table.

The prompt, the commands, ``--fail``, experiments, records, the page and the reports read from this
table how a fault is written, which nodes it names, and what it does to cables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, meant, require

# Targets of faults: the kinds of things that break.
CABLE, SERVER, SWITCH, RACK = "cable", "server", "switch", "rack"
# Effects of faults on cables. Frames of a cable whose ports keep their carrier are LOST (all of
# them), LOST_ONE_WAY (those from its first end), CORRUPTED, DUPLICATED or REORDERED (some of them).
# Ports of a FLAPPING cable lose their carrier and get it back, in turn.
CARRIER_LOST, FLAPPING = "carrier lost", "carrier flaps"
LOST, LOST_ONE_WAY = "frames lost", "frames lost one way"
CORRUPTED, DUPLICATED = "bit errors", "frames duplicated"
REORDERED = "frames reordered"


class Amount(NamedTuple):
    """A number of a kind of fault, such as a bit error rate."""

    form: str  # placeholder in the text form
    meaning: str
    unit: str
    least: float
    most: float
    usual: float  # number that the page offers, and the default if the number has a word
    word: str = ""  # word before the number in the text form; only numbers with a word are optional


class FaultKind(NamedTuple):
    """A kind of fault.

    Attributes
    ----------
    name
        Name in records, logs and reports.
    verb
        First word of the fault's text form, and the command at a lab's prompt.
    option
        Word after the target in the text form, empty for most kinds.
    target
        CABLE, SERVER, SWITCH or RACK.
    effect
        Effect on the cables of the target.
    breaks
        True if routing and ideal goodput treat the target as failed.
    about
        Description for help texts.
    predicate
        Effect of the fault, as the rest of a sentence that begins with the target; with ``{first}``
        for its first node and ``{rest}`` for the others.
    amounts
        Numbers after the target, those with a word last; most kinds have none.
    """

    name: str
    verb: str
    option: str
    target: str
    effect: str
    breaks: bool
    about: str
    predicate: str
    amounts: tuple[Amount, ...] = ()

    @property
    def event(self) -> str:
        """Name of the event at which the fault begins, in records and logs."""
        return "kill" if self.target == SERVER else self.name

    @property
    def words(self) -> str:
        """Verb and option of the text form: ``cut silent``."""
        return f"{self.verb} {self.option}".strip()

    @property
    def target_form(self) -> str:
        """Placeholder of the target in the text form: ``A-B``, ``A`` or ``SWITCH``."""
        return {CABLE: "A-B", SERVER: "A"}.get(self.target, "SWITCH")

    @property
    def form(self) -> str:
        """Text form of the fault, with placeholders: ``cut A-B silent``."""
        amounts = [f"[{one.word} {one.form}]" if one.word else one.form for one in self.amounts]
        return " ".join(filter(None, [self.verb, self.target_form, self.option, *amounts]))

    def amount_words(self, numbers: Iterable[float]) -> str:
        """Return the numbers of a fault of this kind as in its text form: ``1 jitter 5``."""
        pairs = zip(self.amounts, numbers, strict=True)
        return " ".join(f"{one.word} {number:.12g}".lstrip() for one, number in pairs)

    def amount_text(self, numbers: Iterable[float]) -> str:
        """Return the numbers of a fault of this kind with their units: ``1 %, jitter 5 ms``."""
        pairs = zip(self.amounts, numbers, strict=True)
        return ", ".join(f"{one.word} {number:g} {one.unit}".lstrip() for one, number in pairs)


FAULT_KINDS = (
    FaultKind("cut", "cut", "", CABLE, CARRIER_LOST, True, "cut a cable", "is cut"),
    FaultKind(
        *("silent cut", "cut", "silent", CABLE, LOST, True),
        "lose all frames; ports keep carrier",
        "drops all frames, and the carrier stays up",
    ),
    FaultKind(
        *("one-way cut", "cut", "one-way", CABLE, LOST_ONE_WAY, True),
        "lose all frames from A to B",
        "drops all frames from {first}, and the carrier stays up",
    ),
    FaultKind(
        *("flapping", "flap", "", CABLE, FLAPPING, False),
        "let the carrier of a cable go and come back, again and again",
        "loses its carrier and gets it back, in turns",
        (Amount("SECONDS", "the time in each state", "s", 0.05, 3600.0, 0.5),),
    ),
    FaultKind(
        *("corrupt", "corrupt", "", CABLE, CORRUPTED, False),
        "let bits flip: ports discard frames with a wrong check sum",
        "has bit errors, and damaged frames are discarded",
        (Amount("RATE", "the bit error rate", "per bit", 1e-12, 1e-5, 1e-6),),
    ),
    FaultKind(
        *("duplicate", "duplicate", "", CABLE, DUPLICATED, False),
        "deliver some frames twice",
        "delivers some frames twice",
        (Amount("PERCENT", "the share of frames", "%", 0.001, 100.0, 1.0),),
    ),
    FaultKind(
        *("reorder", "reorder", "", CABLE, REORDERED, False),
        "deliver some frames late, after frames that were sent later",
        "delivers some frames late",
        (
            Amount("PERCENT", "the share of frames", "%", 0.001, 50.0, 1.0),
            Amount("MS", "the lateness", "ms", 0.1, 1000.0, 5.0, word="jitter"),
        ),
    ),
    FaultKind(
        *("server", "kill", "", SERVER, CARRIER_LOST, True),
        "kill a server with all its programs",
        "is dead, with all its programs",
    ),
    FaultKind(
        *("switch", "stop", "", SWITCH, CARRIER_LOST, True), "power off a switch", "has stopped"
    ),
    FaultKind(
        *("rack", "rack", "", RACK, CARRIER_LOST, True),
        "power off a switch and all servers attached to it",
        "has stopped, and {rest} are dead",
    ),
)
BY_NAME = {kind.name: kind for kind in FAULT_KINDS}
BY_WORDS = {kind.words: kind for kind in FAULT_KINDS}
VERBS = tuple(dict.fromkeys(kind.verb for kind in FAULT_KINDS))


def fault_kind(name: str) -> FaultKind:
    """Return the kind of fault with a name, as in records and logs."""
    return BY_NAME[name]


def fault_verbs() -> dict[str, str]:
    """Return the verbs of faults, each with the descriptions of its kinds."""
    return {
        verb: "; ".join(
            f"{kind.option}: {kind.about}" if kind.option else kind.about
            for kind in kinds_of_verb(verb)
        )
        for verb in VERBS
    }


def kinds_of_verb(verb: str) -> list[FaultKind]:
    """Return the kinds of faults that begin with a verb; raise PillarboxError for other words."""
    found = [kind for kind in FAULT_KINDS if kind.verb == verb]
    if found:
        return found
    named = BY_NAME.get(verb)
    hint = f"did you mean {named.words}?" if named else meant(verb, BY_WORDS)
    raise UnknownNameError(f"there is no fault {verb!r}: {hint}")


def amounts_of(kind: FaultKind, words: list[str]) -> tuple[tuple[float, ...], list[str]]:
    """Return the numbers of a fault from the words after its target, and the words after them.

    >>> amounts_of(fault_kind("duplicate"), ["2.5", "at", "3"])
    ((2.5,), ['at', '3'])
    >>> amounts_of(fault_kind("reorder"), ["2.5", "at", "3"])
    ((2.5, 5.0), ['at', '3'])
    >>> amounts_of(fault_kind("cut"), ["at", "3"])
    ((), ['at', '3'])
    """
    found: list[float] = []
    for amount in kind.amounts:
        if amount.word:
            if words[:1] != [amount.word]:
                found.append(amount.usual)
                continue
            words = words[1:]
        require(bool(words), f"write: {kind.form}")
        found.append(_amount(kind, amount, words[0]))
        words = words[1:]
    return tuple(found), words


def _amount(kind: FaultKind, amount: Amount, text: str) -> float:
    """Return a number of a fault from its text; raise PillarboxError if it is out of range."""
    try:
        number = float(text.removesuffix(amount.unit))
    except ValueError:
        raise PillarboxError(f"{text!r} is not a number: write {kind.form}") from None
    require(
        amount.least <= number <= amount.most,
        f"{amount.meaning} of {kind.verb} is {amount.least:g} to {amount.most:g} {amount.unit}, "
        f"not {number:g}",
    )
    return number
