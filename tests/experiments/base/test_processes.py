"""Commands with further environment variables."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pillarbox.experiments.base.processes import with_variables


def test_program_with_an_equals_sign_in_its_path(tmp_path: Path) -> None:
    program = tmp_path / "a=b" / "program"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$RANK $1 $2"\n')
    program.chmod(0o755)
    command = with_variables(["RANK=3"], [str(program), "C=4", "two words"])
    assert subprocess.check_output(command, text=True) == "3 C=4 two words\n"
