"""How faults are written: one parser for the prompt, --fail, TOML and Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.runs.control.verbs import answer
from pillarbox.experiments.runs.plans.experiment import FaultAt
from pillarbox.hosts.base.failures import parse_failures
from pillarbox.hosts.base.fault_kinds import CABLE, FAULT_KINDS
from pillarbox.hosts.base.faults import Fault, read
from pillarbox.topos.base.errors import PillarboxError

NAMES = st.sampled_from(["0.3", "h19", "s2", "1.10.dcell"])
SECONDS = st.integers(0, 10**7).map(lambda ms: ms / 1000)


@st.composite
def faults(draw):
    kind = draw(st.sampled_from(FAULT_KINDS))
    what = tuple(draw(NAMES) for _ in range(1 + (kind.target == CABLE)))
    amounts = tuple(float(f"{draw(st.floats(one.least, one.most)):.12g}") for one in kind.amounts)
    return Fault(kind.name, what, draw(SECONDS), draw(st.none() | SECONDS), amounts)


@given(faults())
def test_what_is_written_is_read_again(fault):
    assert read(str(fault)) == fault
    assert read(str(fault).split()) == fault


@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_optional_numbers_are_the_usual_ones_if_they_are_left_out(kind):
    words = f"{kind.verb} {'0.3-4.0' if kind.target == CABLE else 's2'} {kind.option}"
    usual = tuple(one.usual for one in kind.amounts)
    assert read(f"{words} {kind.amount_words(usual)} at 2").amounts == usual
    required = " ".join(f"{one.usual:g}" for one in kind.amounts if not one.word)
    assert read(f"{words} {required} at 2").amounts == usual


WRONG = [
    ("server:1.3", "'server:1.3' is written 'kill 1.3'"),
    ("switch:s1", "'switch:s1' is written 'stop s1'"),
    ("link:0.3-4.0", "'link:0.3-4.0' is written 'cut 0.3-4.0'"),
    ("cut 0.3 4.0", "a cable is one word: cut 0.3-4.0"),
    ("cut 0.3 4.0 silent", "a cable is one word: cut 0.3-4.0 silent"),
    ("cut 0.3", "write its two ends, as 0.3-4.0"),
    ("kil 1.3", r"there is no fault 'kil': did you mean kill\?"),
    ("kill", "write: kill A"),
    ("kill 1.3 silent", "does not end with 'silent': write: kill A"),
    ("duplicate 0.3-4.0", "write: duplicate A-B PERCENT"),
    (
        "reorder 0.3-4.0 jitter 5",
        r"'jitter' is not a number: write reorder A-B PERCENT \[jitter MS\]",
    ),
    ("reorder 0.3-4.0 1 jitter", r"write: reorder A-B PERCENT \[jitter MS\]"),
    ("reorder 0.3-4.0 60", "the share of frames of reorder is 0.001 to 50 %, not 60"),
    ("reorder 0.3-4.0 1 jitter 0", "the lateness of reorder is 0.1 to 1000 ms, not 0"),
    ("cut 0.3-4.0 at noon", "'noon' in 'cut 0.3-4.0 at noon' is no number of seconds"),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_what_is_wrong_is_said_alike_everywhere(text, sentence):
    with pytest.raises(PillarboxError, match=sentence):
        read(text)
    with pytest.raises(PillarboxError, match=sentence):
        parse_failures(topos.parse("dcell,4,1"), [text])
    with pytest.raises(PillarboxError, match=sentence):
        FaultAt(text)


@pytest.mark.parametrize("words", ["cut 0.3 4.0", "cut 0.3", "kill 1.3 silent"])
def test_prompt_reads_faults_the_same_way(words):
    verb, *rest = words.split()
    with pytest.raises(PillarboxError) as said:
        answer(None, verb, rest)
    with pytest.raises(PillarboxError) as meant:
        read(words)
    assert str(said.value) == str(meant.value)


def test_moments_are_for_experiments():
    with pytest.raises(PillarboxError, match=r"begins now: write 'kill 1\.3'"):
        answer(None, "kill", ["1.3", "at", "2"])
    with pytest.raises(PillarboxError, match=r"have no times \(at, until\): write 'kill 1\.3'"):
        parse_failures(topos.parse("dcell,4,1"), ["kill 1.3 until 2"])


def test_rack_takes_its_servers_with_it():
    dcell = topos.parse("dcell,4,1")
    assert parse_failures(dcell, ["rack s1"]).nodes == {4, 5, 6, 7, 21}
