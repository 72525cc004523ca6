"""Specs, and what is refused: always one sentence that says what would be right."""

import contextlib
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("dpillar,7,2", "even"),
        ("dpillar,8,1", "from 2"),
        ("dpillar,2,3", "n >= 4"),
        ("ficonn,5,1", "even"),
        ("ficonn,4,-1", "0 or more"),
        ("dcell,4,-1", "0 or more"),
        ("dcell,1,1", "n >= 2"),
        ("bcube,4,-1", "from 0"),
        ("bcube,1,1", "n >= 2"),
        ("fattree,5", "even"),
        ("tree,0,3", "n >= 1"),
        ("tree,3,0", "m >= 1"),
        ("bcube,8,3,servers=2049", "multiple of 512"),
        ("bcube,8,3,servers=4608", "up to 4096"),
        ("dcell,4,1,servers=21", "1 to 20"),
        ("dcell,4,1,servers=0", "1 to 20"),
        ("tree,4,5,servers=16", "17 to 20"),
        ("dcell,6,4", "32-bit"),
        ("dcell,4,99999", "level 3 is the largest"),
        ("bcube,64,31", "32-bit"),
        ("dpillar,48,31", "32-bit"),
        ("ficonn,48,9", "32-bit"),
        ("fattree,48,levels=9", "32-bit"),
        ("bcub,4,1", "did you mean bcube"),
        ("bcube", "write bcube,n,k"),
        ("bcube,4", "write bcube,n,k"),
        ("bcube,4,1,1", "write bcube,n,k"),
        ("bcube,4,x", "not a whole number"),
        ("bcube,4,1.0", "not a whole number"),
        ("bcube,4,²", "not a whole number"),
        ("bcube,4," + "9" * 5000, "not a whole number"),
        ("bcube,4,1,colour=3", "unknown or repeated"),
        ("bcube,n=4,4,1", "must come before the options"),
        ("custom", "no network"),
        ("base", "no network"),
        ("../bcube,4,1", "no network"),
        ("", "no network"),
    ],
)
def test_bad_spec_is_refused_in_one_sentence(spec: str, says: str) -> None:
    with pytest.raises(topos.PillarboxError) as caught:
        topos.parse(spec)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30))
def test_no_text_escapes_as_another_error(text: str) -> None:
    with contextlib.suppress(topos.PillarboxError):
        topos.parse(text)


@given(st.sampled_from(topos.kinds()), st.lists(st.integers(-3, 60), max_size=4))
def test_any_numbers_give_a_network_or_the_one_error(kind: str, numbers: list[int]) -> None:
    try:
        topology = topos.parse(",".join([kind, *map(str, numbers)]))
    except topos.PillarboxError:
        return
    assert topos.parse(topology.spec) == topology
    assert 0 < topology.servers <= 2**32
    assert topology.cables > 0


def test_optional_parameters_that_change_nothing_are_not_in_the_spec() -> None:
    assert topos.parse("bcube,4,1,servers=16").spec == "bcube,4,1"
    assert topos.parse("fattree,4,levels=3").spec == "fattree,4"
    assert topos.parse("bcube,n=4,k=1") == topos.parse("bcube,4,1")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("self.check_size()", "self.check_all()", "AttributeError: 'Tree' object has no attribute"),
        ("self.check_size()", "self.switches // 0", "ZeroDivisionError: integer division"),
        ("class Tree(", "class Tree((", "SyntaxError: "),
    ],
)
def test_an_error_in_a_networks_file_is_one_sentence_with_its_line(
    old: str, new: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topos, "__path__", [*topos.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "pillarbox.topos.erroneous", raising=False)
    text = (Path(topos.__path__[0]) / "tree.py").read_text()
    file = tmp_path / "erroneous.py"
    file.write_text(text.replace(old, new))
    with pytest.raises(topos.PillarboxError, match=rf"^{file}, line \d+: {said}"):
        topos.parse("erroneous,2,2")
