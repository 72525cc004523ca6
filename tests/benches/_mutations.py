"""Damaged inputs: valid inputs of a corpus with changes to parts of their grammar."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeAlias

from tests.benches.fuzz import MUTATIONS

Mutator: TypeAlias = Callable[[bytes, Sequence[bytes], Random], bytes]

# Fuzzing tokens that programs often misread: numbers beyond limits, foreign digits, invalid
# UTF-8, terminal escapes, and unbalanced quotes and brackets.
WORDS = (
    *(b"", b"0", b"-1", b"1", b"2", b"1.5", b"1e99", b"1e400", b"-1e400", b"nan", b"inf", b"None"),
    *(b"9" * 18, b"9" * 19, b"9" * 400, b"9" * 5000, b"1_0", b"0x10", b"true", b"null", b"none"),
    *("٣".encode(), "²".encode(), "東".encode(), b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[2J"),
    *(
        b"\xe2\x80\xae",
        b"\xef\xbb\xbf",
        b'"',
        b"'",
        b"\\",
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b".",
        b"=",
    ),
    *(b"..", b"-", b"--", b" ", b"\n", b"\r\n", b"\t", b"#", b"[" * 2000, b"{'a':" * 500),
    *(b"a" * 5000, b"/dev/zero", b"/", b"%s", b"{0}", b"$x^", b"<b>", b"at 1 until 0", b"*"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 1.5, -0.0, 1e99, 1e308, float("nan"), float("inf")),
    *(2**31, 2**63, 2**64, 10**400, "", "a", "0", "0.0", "-1", "nan", "9" * 400, "\x00", "\x1b[2J"),
    *("\ud800", "東", "٣", "a" * 5000, [], {}, [[]], {"": None}, [None], [0], ["a"], {"a": 1}),
)
TOKENS = re.compile(rb"[A-Za-z_]+|[0-9]+|\s+|.", re.DOTALL)
DEPTH = 3000  # nesting depth of a fuzz input that consists of brackets


def mutated_text(data: bytes, corpus: Sequence[bytes], random: Random) -> bytes:
    """Mutate a text for fuzzing: replace, remove, repeat, move or copy tokens."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 6))):
        if random.random() < 0.15:
            data = mutated_bytes(data, corpus, random)
            continue
        tokens = TOKENS.findall(data) or [b""]
        at = random.randrange(len(tokens))
        kind = random.randrange(6)
        if kind <= 1:
            tokens[at] = random.choice(WORDS)
        elif kind == 2:
            tokens.insert(at, random.choice(WORDS))
        elif kind == 3:
            other = TOKENS.findall(random.choice(corpus)) or [b""]
            tokens[at] = random.choice(other)
        elif kind == 4:
            end = min(len(tokens), at + random.randint(1, 8))
            tokens[at:end] = tokens[at:end] * random.choice((0, 2, 3))
        else:
            other_at = random.randrange(len(tokens))
            tokens[at], tokens[other_at] = tokens[other_at], tokens[at]
        data = b"".join(tokens)
    return data


def mutated_bytes(data: bytes, corpus: Sequence[bytes], random: Random) -> bytes:
    """Mutate bytes for fuzzing: flip, cut, add, or copy parts of another input."""
    if not data:
        return random.randbytes(random.randrange(64))
    others = [one for one in corpus if one] or [b"\0"]
    return random.choice(MUTATIONS)(data, others, random)


def mutated_json(data: bytes, corpus: Sequence[bytes], random: Random) -> bytes:
    """Mutate JSON for fuzzing: replace values, keys or branches, or make it invalid."""
    chance = random.random()
    if chance < 0.1:
        return mutated_text(data, corpus, random)
    if chance < 0.12:
        return random.choice((b"[", b'{"a":', b'[{"":')) * DEPTH
    tree = json.loads(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        tree = _changed_once(tree, json.loads(random.choice(corpus)), random)
    return json.dumps(tree).encode()


def _changed_once(tree: Any, other: Any, random: Random) -> Any:
    """Return JSON data with one mutation at a random place."""
    if isinstance(tree, (dict, list)) and tree and random.random() < 0.85:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = random.choice(keys)
        kind = random.random()
        if kind < 0.08:
            del tree[key]
        elif kind < 0.12 and isinstance(tree, dict):
            tree[random.choice((str(key) + "x", "", "\x1b", "a" * 500))] = tree.pop(key)
        elif kind < 0.16 and isinstance(tree, list):
            tree *= random.choice((0, 2, 3))
        else:
            below = other[key] if isinstance(other, dict) and key in other else other
            tree[key] = _changed_once(tree[key], below, random)
        return tree
    return copy.deepcopy(random.choice(VALUES) if random.random() < 0.9 else other)


def mutated_csv(data: bytes, corpus: Sequence[bytes], random: Random) -> bytes:
    """Mutate a CSV table for fuzzing: replace, add or remove cells or rows."""
    if random.random() < 0.2:
        return mutated_text(data, corpus, random)
    rows = [line.split(b",") for line in data.split(b"\n")]
    for _ in range(random.choice((1, 1, 2, 3))):
        row = random.choice(rows)
        at = random.randrange(len(row)) if row else 0
        kind = random.randrange(6)
        if kind <= 2 and row:
            row[at] = random.choice(WORDS)
        elif kind == 3 and row:
            del row[at]
        elif kind == 4:
            row[at:at] = [random.choice(WORDS)] * random.choice((1, 1, 5, 3000))
        else:
            rows.append(list(row))
    return b"\n".join(b",".join(row) for row in rows)


def text_corpus(*written: str) -> tuple[bytes, ...]:
    """Return texts as a fuzzing corpus, encoded in UTF-8."""
    return tuple(text.encode() for text in written)


def json_corpus(*values: Any) -> tuple[bytes, ...]:
    """Return values as a fuzzing corpus, encoded in JSON."""
    return tuple(json.dumps(value).encode() for value in values)
