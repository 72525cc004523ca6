"""Digests of source code, which tell whether stored results are those of the present code."""

from __future__ import annotations

import ast
import hashlib
import importlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PRODUCT = "pillarbox"
SUFFIXES = (".py", ".c", ".h")  # files of a package that are code


@cache
def code_digest(*modules: str, without: tuple[str, ...] = (), imports: bool = False) -> str:
    """Return a hash of the code of modules and packages, without comments and docstrings.

    It is the same for all versions of Python. With `imports`, it includes the product's modules
    that these import, directly or not; of a package, only what is imported by name. The packages
    `without` are left out, except modules of them that `modules` names.
    """
    left_out = {_module_file(name).parent for name in without}
    keys: dict[Path, str] = {}
    for name in modules:
        keys |= _files(name, left_out)
    to_follow = list(keys) if imports else []
    for file in to_follow:  # The list grows.
        for name, one in _imported_files(file, file.stat().st_mtime_ns):
            if one not in keys and left_out.isdisjoint(one.parents):
                keys[one] = name
                to_follow.append(one)
    found = hashlib.sha256()
    for one, key in sorted(keys.items(), key=lambda item: item[1]):
        found.update(key.encode())
        found.update(_file_hash(one, one.stat().st_mtime_ns))
    return found.hexdigest()


@cache
def _file_hash(file: Path, _changed_ns: int) -> bytes:
    """Return a hash of a file's code; it is computed once for each time of the last change."""
    source = file.read_text(encoding="utf-8")
    return hashlib.sha256(
        (python_code(source) if file.suffix == ".py" else source).encode()
    ).digest()


def _module_file(module: str) -> Path:
    return Path(str(importlib.import_module(module).__file__))


def _files(module: str, left_out: set[Path]) -> dict[Path, str]:
    """Return a module's file, or all files of code of a package, with a name for each."""
    file = _module_file(module)
    if file.name != "__init__.py":
        return {file: module}
    return {
        one: f"{module}/{one.relative_to(file.parent).as_posix()}"
        for one in file.parent.rglob("*")
        if one.suffix in SUFFIXES and left_out.isdisjoint(one.parents)
    }


@cache
def _imported_files(file: Path, _changed_ns: int) -> list[tuple[str, Path]]:
    """Return the product's modules that a file imports, anywhere in it, with their files."""
    found = []
    names = imported_names(file.read_text(encoding="utf-8")) if file.suffix == ".py" else ()
    for name in names:
        with suppress(ModuleNotFoundError):  # a name that a module has, not a package
            spec = find_spec(name) if name.partition(".")[0] == PRODUCT else None
            if spec and spec.origin:
                found.append((name, Path(spec.origin)))
    return found


def imported_names(source: str) -> set[str]:
    """Return the names of modules that Python's source imports, and of what it takes from them.

    Imports for type checkers alone do not count.

    >>> sorted(imported_names("import a.b\\ndef f():\\n    from c import d"))
    ['a.b', 'c', 'c.d']
    >>> sorted(imported_names("if TYPE_CHECKING:\\n    import a\\nelse:\\n    import b"))
    ['b']
    """
    found: set[str] = set()
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            nodes += node.orelse
        elif not isinstance(node, ast.expr):
            nodes += ast.iter_child_nodes(node)
    return found


def python_code(source: str) -> str:
    r"""Return Python's source without docstrings, and without lines that are empty or a comment.

    >>> python_code('# why\ndef f():\n    "Return one."\n    return 1  # one\n')
    'def f():\n    return 1  # one'
    """
    lines = source.splitlines()
    for documented in _docstrings(ast.parse(source)):
        for at in range(documented.lineno - 1, documented.end_lineno or documented.lineno):
            lines[at] = ""
    return "\n".join(
        line.rstrip() for line in lines if line.strip() and not line.lstrip().startswith("#")
    )


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            assert isinstance(first, ast.Expr)
            yield first.value
