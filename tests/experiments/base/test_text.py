"""Text of others is shown without what a terminal, a browser or an encoder would act on."""

import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.experiments.base.text import JOINERS, LONGEST, printable, printable_lines

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates as well

ATTACKS = {
    "colour": ("\x1b[31mred", r"\x1b[31mred"),
    "title": ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
    "clipboard": ("\x1b]52;c;cm0gLXJm\x1b\\", r"\x1b]52;c;cm0gLXJm\x1b" + "\\"),
    "C1 control sequence": ("\x9b31m", r"\x9b31m"),
    "overwritten line": ("0 of 100\r100 of 100", r"0 of 100\r100 of 100"),
    "further line": ("ok\nanna  100 of 100", r"ok\nanna  100 of 100"),
    "line separator": ("a\u2028b\u0085c", r"a\u2028b\x85c"),
    "reversed": ("\u202egpj.exe\u2066", r"\u202egpj.exe\u2066"),
    "invisible": ("an\u200bna\ufeff", r"an\u200bna\ufeff"),
    "lone surrogate": ("\ud800", r"\ud800"),
    "byte of a file name": (b"caf\xe9.py".decode("utf-8", "surrogateescape"), r"caf\udce9.py"),
    "tag letter": ("\U000e0041", r"\U000e0041"),
    "delete": ("\x7f\x00", r"\x7f\x00"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_terminal_would_act_on_is_shown_instead(name: str) -> None:
    text, shown = ATTACKS[name]
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["Zürich", "東京", "ñandú – 3 × µs", "مرحبا", "می‌خواهم", "👩‍🔬"])
def test_other_writing_stays(text: str) -> None:
    assert printable(text) == text
    assert printable_lines(f"{text}\n\t{text}\n") == f"{text}\n\t{text}\n"


@given(ANY_TEXT, st.integers(1, 50))
def test_whatever_it_is_one_bounded_line_comes_out(text: str, limit: int) -> None:
    shown = printable(text, limit)
    shown.encode()
    assert len(shown) <= limit
    assert len(shown.splitlines()) <= 1
    assert printable(shown, limit) == shown


@given(ANY_TEXT)
def test_lines_keep_their_breaks_and_tabs_only(text: str) -> None:
    shown = printable_lines(text)
    shown.encode()
    assert re.findall(r"[\n\t]", shown) == re.findall(r"[\n\t]", text)


def test_no_letter_that_python_calls_a_control_passes() -> None:
    passed = [c for c in map(chr, range(sys.maxunicode + 1)) if printable(c) == c]
    hidden = {c for c in passed if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert hidden == set(JOINERS)


def test_a_long_text_is_cut_where_the_limit_is() -> None:
    assert len(printable("a" * 10**6)) == LONGEST
    assert printable("\x00" * 10**6, limit=10) == r"\x00\x00\…"
