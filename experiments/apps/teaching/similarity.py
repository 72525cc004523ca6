"""Similarity of submissions by winnowing (Schleimer, Wilkerson, Aiken 2003).

A file becomes a sequence of tokens without its names, numbers, strings and comments, so that
renaming and reformatting have no effect. A few of all sequences of RUN tokens are stored as
fingerprints: two files with RUN + WINDOW - 1 consecutive tokens in common share at least one
fingerprint. Tokens of the skeleton do not count, since all files have them.
"""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from itertools import combinations
from typing import NamedTuple
from zlib import crc32

RUN, WINDOW = 10, 4
THRESHOLD = 0.7  # minimum common fraction of two files that is reported to the teacher
FEWEST = 8  # minimum number of fingerprints of a file that is compared

_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING, tokenize.ENDMARKER}
_KINDS = {tokenize.NUMBER: "0", tokenize.STRING: "''", tokenize.INDENT: ">", tokenize.DEDENT: "<"}
# Tokens of C. A comment or string that does not end reaches to the end of the file or line, so that
# the search takes linear time.
_C_TOKEN = re.compile(
    r"""(?P<silent> \s+ | \\\n | //[^\n]* | /\*(?:.*?\*/|.*) )
    | (?P<string> "(?:\\.|[^"\\\n])*"? | '(?:\\.|[^'\\\n])*'? )
    | (?P<number> \.?\d[\w.]* )
    | (?P<name> [A-Za-z_]\w* )
    | (?P<sign> . )""",
    re.VERBOSE | re.DOTALL,
)
_C_WORDS = {"if", "else", "for", "while", "do", "return", "struct", "static", "switch", "case"}


class SimilarPair(NamedTuple):
    """Two similar submissions, and the fraction of the shorter submission that is in the other."""

    first: str
    second: str
    share: float


def fingerprints(source: str, suffix: str = ".py") -> frozenset[int]:
    """Return the fingerprints of a file's token sequences, of Python or else of C."""
    tokens = _tokens(source) if suffix == ".py" else _c_tokens(source)
    runs = [crc32(" ".join(tokens[i : i + RUN]).encode()) for i in range(len(tokens) - RUN + 1)]
    return frozenset(min(runs[i : i + WINDOW]) for i in range(max(0, len(runs) - WINDOW + 1)))


def shared_fraction(first: Set[int], second: Set[int]) -> float:
    """Return the fraction of the shorter file's fingerprints in the other; 0 if it is too short."""
    fewest = min(len(first), len(second))
    return len(first & second) / fewest if fewest >= FEWEST else 0.0


def similar_pairs(
    prints: Mapping[str, Set[int]], threshold: float = THRESHOLD
) -> list[SimilarPair]:
    """Return the pairs of submissions whose similarity is at least `threshold`, highest first.

    `prints` are the fingerprints of each file, without those of the skeleton.
    """
    pairs = (
        SimilarPair(a, b, shared_fraction(prints[a], prints[b])) for a, b in combinations(prints, 2)
    )
    return sorted((pair for pair in pairs if pair.share >= threshold), key=lambda pair: -pair.share)


def pairs_with_same_runs(prints: Mapping[str, Set[str]]) -> list[SimilarPair]:
    """Return the pairs of submissions with a trial in common, by the hashes of their trials."""
    pairs = ((a, b, prints[a] & prints[b]) for a, b in combinations(prints, 2))
    return [
        SimilarPair(a, b, len(same) / min(len(prints[a]), len(prints[b])))
        for a, b, same in pairs
        if same
    ]


def similar_by_submission(pairs: Iterable[SimilarPair]) -> dict[str, list[tuple[str, float]]]:
    """Return each submission's similar submissions, with the fractions of common code."""
    found: dict[str, list[tuple[str, float]]] = {}
    for first, second, share in pairs:
        found.setdefault(first, []).append((second, share))
        found.setdefault(second, []).append((first, share))
    return found


def source_tokens(source: str, suffix: str = ".py") -> list[str]:
    """Return a file's tokens without comments, of Python up to the first syntax error, or of C."""
    if suffix != ".py":
        return [found[0] for found in _C_TOKEN.finditer(source) if found.lastgroup != "silent"]
    return [token.string for token in _python_tokens(source)]


def _c_tokens(source: str) -> list[str]:
    """Return a C file's tokens with placeholders for names, numbers and strings."""
    found = ((one.lastgroup or "", one[0]) for one in _C_TOKEN.finditer(source))
    return [
        text if kind == "sign" or text in _C_WORDS else kind
        for kind, text in found
        if kind != "silent"
    ]


def _tokens(source: str) -> list[str]:
    """Return a file's tokens with placeholders for names, numbers and strings."""
    return [
        "name"
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string)
        else _KINDS.get(token.type, token.string)
        for token in _python_tokens(source)
    ]


def _python_tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    with suppress(tokenize.TokenError, SyntaxError, ValueError):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in _SILENT:
                yield token
