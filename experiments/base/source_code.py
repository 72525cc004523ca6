"""Digests of source code, which tell whether stored results are those of the present code."""

from __future__ import annotations

import ast
import hashlib
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SUFFIXES = (".py", ".c", ".h")  # files of a package that are code


@cache
def code_digest(*modules: str, without: tuple[str, ...] = ()) -> str:
    """Return a hash of the code of modules and packages, without comments and docstrings.

    It is the same for all versions of Python. The packages `without` are left out.
    """
    found = hashlib.sha256()
    left_out = {_module_file(name).parent for name in without}
    for name in modules:
        file = _module_file(name)
        for one in _files(file):
            if left_out.isdisjoint(one.parents):
                found.update(one.relative_to(file.parent).as_posix().encode())
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


def _files(file: Path) -> list[Path]:
    """Return a module's file, or all files of code of a package."""
    if file.name != "__init__.py":
        return [file]
    return sorted(one for one in file.parent.rglob("*") if one.suffix in SUFFIXES)


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
