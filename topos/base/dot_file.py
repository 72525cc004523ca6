"""Parser of graphs in Graphviz's DOT language (graphviz.org, *DOT Language*).

Supported are undirected graphs with statements for nodes, edges, defaults and subgraphs. Ports of
nodes and attributes of graphs are ignored. Refused are HTML strings, and edges to subgraphs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

DEEPEST = 100  # maximum depth of nested subgraphs
# Maximum number of backslashes in a string: the parser needs some 100 bytes of memory for each.
MOST_ESCAPES = 10_000
MOST_DEFAULTS = 100  # maximum number of default attributes, which each new node or edge copies
_TOKEN = re.compile(
    rf"""
    (?P<space> \s+ | //[^\n]* | /\*.*?\*/ | ^\#[^\n]* )
    | " (?P<quoted> [^"\\]* (?: \\. [^"\\]* ){{0,{MOST_ESCAPES}}} ) "
    | (?P<word> [^\W\d]\w* | -?(?: \.[0-9]+ | [0-9]+(?:\.[0-9]*)? ) )
    | (?P<sign> -- | -> | [{{}}\[\];,=:+] )
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_KEYWORDS = {"node", "edge", "graph", "digraph", "subgraph", "strict"}

Attributes = dict[str, str]


class DotGraph(NamedTuple):
    """Nodes and edges of a DOT file with their attributes, in the file's order."""

    directed: bool
    nodes: dict[str, Attributes]
    edges: list[tuple[str, str, Attributes]]


class _Token(NamedTuple):
    """A part of a DOT file: its kind (sign, keyword, name, or "" at the end), text and position."""

    kind: str
    text: str
    start: int


def parse_dot(text: str) -> DotGraph:
    """Return the graph of a DOT file, or raise ValueError.

    >>> parse_dot('graph { s [kind=switch]; a -- s -- "b 1" [level=2] }').edges
    [('a', 's', {'level': '2'}), ('s', 'b 1', {'level': '2'})]
    """
    return _Parser(text).parse()


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while found := _TOKEN.match(text, at):
        start, at = at, found.end()
        if found["quoted"] is not None:
            yield _Token("name", re.sub(r'\\(?:\n|(?="))', "", found["quoted"]), start)
        elif found["word"]:
            keyword = found["word"].lower() in _KEYWORDS
            word = found["word"].lower() if keyword else found["word"]
            yield _Token("keyword" if keyword else "name", word, start)
        elif found["sign"]:
            yield _Token("sign", found["sign"], start)
    if at < len(text):
        raise _syntax_error(text, at, repr(text[at]))
    yield _Token("", "", at)


def _syntax_error(text: str, at: int, unexpected: str) -> ValueError:
    return ValueError(f"unexpected {unexpected} in line {text.count(chr(10), 0, at) + 1}")


class _Parser:
    """Parser of one DOT file, with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens = text, _tokens(text)
        self._next = next(self._tokens)
        self._graph = DotGraph(False, {}, [])
        # Attributes of new nodes and edges, in the graph and in each open subgraph.
        self._defaults: list[dict[str, Attributes]] = [{"node": {}, "edge": {}, "graph": {}}]

    def parse(self) -> DotGraph:
        """Return the graph of the file; of a directed graph, nothing else."""
        self._skip("strict")
        if self._skip("digraph"):
            return DotGraph(True, {}, [])
        self._expect("graph")
        if self._next.kind == "name":
            self._name()
        self._expect("{")
        while self._defaults:
            self._statement()
        if self._next.kind:
            raise self._error()
        return self._graph

    def _statement(self) -> None:
        if self._skip(";"):
            return
        if self._skip("}"):
            self._defaults.pop()
            if self._next.text in ("--", "->"):
                raise self._error()
        elif self._skip("subgraph"):
            if self._next.kind == "name":
                self._name()
            self._open_subgraph()
        elif self._next.kind == "sign" and self._next.text == "{":
            self._open_subgraph()
        elif self._next.kind == "keyword" and self._next.text in self._defaults[-1]:
            defaults = self._defaults[-1][self._take().text]
            defaults.update(self._attributes())
            if len(defaults) > MOST_DEFAULTS:
                raise ValueError(f"more than {MOST_DEFAULTS} default attributes")
        else:
            self._nodes_and_edges()

    def _open_subgraph(self) -> None:
        self._expect("{")
        if len(self._defaults) > DEEPEST:
            raise ValueError(f"more than {DEEPEST} nested subgraphs")
        self._defaults.append({name: dict(one) for name, one in self._defaults[-1].items()})

    def _nodes_and_edges(self) -> None:
        names = [self._name()]
        if self._skip("="):  # an attribute of the graph
            self._name()
            return
        self._ports()
        while self._skip("--"):
            names.append(self._name())
            self._ports()
        attributes = self._attributes()
        for name in names:
            self._graph.nodes.setdefault(name, dict(self._defaults[-1]["node"]))
        if len(names) == 1:
            self._graph.nodes[names[0]].update(attributes)
        for a, b in pairwise(names):
            self._graph.edges.append((a, b, self._defaults[-1]["edge"] | attributes))

    def _ports(self) -> None:
        while self._skip(":"):
            self._name()

    def _attributes(self) -> Attributes:
        found = {}
        while self._skip("["):
            while not self._skip("]"):
                key = self._name()
                self._expect("=")
                found[key] = self._name()
                if not self._skip(","):
                    self._skip(";")
        return found

    def _name(self) -> str:
        """Take a name, or quoted strings that are joined by plus signs."""
        parts: list[str] = []
        while not parts or self._skip("+"):
            if self._next.kind != "name":
                raise self._error()
            parts.append(self._take().text)
        return "".join(parts)

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            raise self._error()

    def _skip(self, text: str) -> bool:
        """Take the next token if it is this keyword or sign; return False otherwise."""
        if self._next.kind == "name" or self._next.text != text:
            return False
        self._take()
        return True

    def _take(self) -> _Token:
        token, self._next = self._next, next(self._tokens)
        return token

    def _error(self) -> ValueError:
        unexpected = repr(self._next.text) if self._next.kind else "end"
        return _syntax_error(self._text, self._next.start, unexpected)
