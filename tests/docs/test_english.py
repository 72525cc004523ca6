"""Texts of the code are plain technical English: habits that hide what a sentence is about fail.

A reader meets a docstring, a comment or a help text alone. So each names its subject and object.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
DEVELOPERS = ("tests/benches", "tests/commands", "tests/harness")
# Packages and files that hold the rules for docstrings and comments.
PLAIN = (
    *("topos", "hosts", "experiments", "src/pillarbox"),
    *DEVELOPERS,
)
PACKAGES = ("topos", "hosts", "experiments")


class Habit(NamedTuple):
    """A pattern that is not written, and what to write instead."""

    pattern: str
    instead: str


DOCSTRINGS = (
    Habit(
        r"\AReturn (what|whom|who|it|them|those|these|one|all that|how|where|when|which|as|of"
        r"|whether (it|they|that|there|one))\b",
        "name the returned value with a noun: 'Return the routes of a server.'",
    ),
)
COMMENTS = (
    Habit(
        r"\A(of|to|by|in|at|from|on|with|without|that|which|who|whose|where|until|since|as|so|or"
        r"|and|else|behind|beside|above|below|into|not|also) ",
        "write a sentence or a noun phrase: '# Upper bound in seconds.'",
    ),
)
BOTH = (
    Habit(
        r"\b(whoever|whom|somebody)\b|(?<![\"`])(?<!--user )\bnobody\b(?![\"`])",
        "name the process, user or node",
    ),
    Habit(r"\banew\b", "write 'again' or 'new'"),
    Habit(r"(?<!--)\bbesides?\b", "write 'next to', 'in addition to' or 'compared with'"),
    Habit(r"\bbut for\b", "write 'except'"),
    Habit(r"\bat once\b", "write 'immediately' or 'simultaneously'"),
    Habit(r"(?<!as )\bso (many|long|large|much|few)\b(?! as)", "name the number"),
    Habit(r"\bout of breath\b|\bgives? way\b|\blets? go of\b|\bsees to\b", "say what happens"),
)
HELPS = Habit(
    r"\A(Of|Whose|So|Nor|Also|Who|Instead|Between|By|For|From|In|On|With|Without)\b",
    "begin with a noun or an imperative: 'Rate of every cable in Mbit/s.'",
)


class Text(NamedTuple):
    """A docstring or a comment, and its place."""

    file: Path
    line: int
    words: str


def sources(*packages: str) -> Iterator[Path]:
    """Yield the Python files of packages and of single modules, given by their paths."""
    for package in packages:
        path = ROOT / package
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        yield from (file for file in files if not file.name.startswith("test_"))


def docstrings(file: Path) -> Iterator[Text]:
    kinds = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, kinds) and (words := ast.get_docstring(node)):
            yield Text(file, getattr(node, "lineno", 1), words)


def comments(file: Path) -> Iterator[Text]:
    """Yield comments; the lines of one that goes over several lines are one text."""
    before = -1
    found: list[Text] = []
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        if token.type != tokenize.COMMENT or re.match(r"# (noqa|type:|fmt:|--)", token.string):
            continue
        words, line = token.string.lstrip("# "), token.start[0]
        if line == before + 1 and found and not token.line[: token.start[1]].strip():
            found[-1] = found[-1]._replace(words=f"{found[-1].words} {words}")
        else:
            found.append(Text(file, line, words))
        before = line
    yield from found


def faults_of(texts: Iterator[Text], habits: tuple[Habit, ...]) -> list[str]:
    return [
        f"{text.file.relative_to(ROOT)}:{text.line}: {found[0]!r}: {habit.instead}"
        for text in texts
        for habit in habits
        if (found := re.search(habit.pattern, text.words))
    ]


@pytest.mark.parametrize("package", PLAIN)
def test_docstrings_name_their_subject(package: str) -> None:
    texts = (text for file in sources(package) for text in docstrings(file))
    faults = faults_of(texts, DOCSTRINGS + BOTH)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("package", PLAIN)
def test_comments_stand_alone(package: str) -> None:
    texts = (text for file in sources(package) for text in comments(file))
    faults = faults_of(texts, COMMENTS + BOTH)
    assert not faults, "\n".join(faults)


def test_help_texts_have_a_subject() -> None:
    texts = (
        Text(file, node.value.lineno, str(node.value.value))
        for file in sources(*PACKAGES)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.keyword)
        and node.arg == "help"
        and isinstance(node.value, ast.Constant)
    )
    faults = faults_of(texts, (HELPS,))
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("words", "habits"),
    [
        ("Return what it shows.", DOCSTRINGS),
        ("of the sheet's formula", COMMENTS),
        ("Start a dead server anew.", BOTH),
        ("Of every cable.", (HELPS,)),
    ],
)
def test_a_habit_is_found(words: str, habits: tuple[Habit, ...]) -> None:
    assert faults_of(iter([Text(ROOT / "topos" / "x.py", 1, words)]), habits)
