"""Other Python processes are started by `pillarbox.experiments.base.interpreter` alone."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.experiments.base import interpreter
from pillarbox.experiments.base.files import CHECKOUT

ALLOWED = {
    "experiments/base/interpreter.py",
    "experiments/apps/teaching/child.py",  # isolated as well, and without site-packages
}


def sources() -> Iterator[Path]:
    for folder in ("topos", "hosts", "experiments", "src"):
        yield from (CHECKOUT / folder).rglob("*.py")


def test_no_other_module_names_the_interpreter() -> None:
    found = {
        str(file.relative_to(CHECKOUT))
        for file in sources()
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr == "executable")
        or (isinstance(node, ast.ImportFrom) and "executable" in {one.name for one in node.names})
    }
    assert found == ALLOWED, "use pillarbox.experiments.base.interpreter to start Python"
    assert (
        '[sys.executable, "-I", "-S",'
        in (CHECKOUT / "experiments/apps/teaching/child.py").read_text()
    )


def test_a_module_has_its_arguments_and_the_import_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shown.py").write_text(
        "import json, sys\nprint(json.dumps([__name__, sys.argv, sys.path]))\n"
    )
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "relative", *sys.path])
    command = interpreter.module_command("shown", 1, "two words")
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    name, arguments, path = json.loads(done.stdout)
    assert (name, arguments) == ("__main__", [str(tmp_path / "shown.py"), "1", "two words"])
    assert path == [str(tmp_path), *(place for place in sys.path[3:] if Path(place).is_absolute())]


def test_code_has_its_arguments() -> None:
    command = interpreter.code_command("print(sys.argv[1:], sys.flags.isolated)", "a", 7)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "['a', '7'] 1\n"
