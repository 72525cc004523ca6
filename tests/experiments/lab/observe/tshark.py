"""tshark with our dissector, as who is not root: as root, Wireshark 4.4 loads no Lua scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

needs_tshark = pytest.mark.skipif(not shutil.which("tshark"), reason="there is no tshark")
NOBODY = 65534


def _ordinary_user() -> dict[str, Any]:
    """Return the arguments of subprocess.run that drop root's rights."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def tshark(capture: Path, script: str, *options: str) -> str:
    """Return what it prints of a capture."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shutil.copyfile(capture, f"{folder}/frames.pcapng")
        Path(folder, "pillarbox.lua").write_text(script)
        command = ["tshark", "-r", "frames.pcapng", "-X", "lua_script:pillarbox.lua", *options]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            cwd=folder,
            env={**os.environ, "HOME": folder},
            **_ordinary_user(),
        )
    assert "Lua" not in done.stderr, done.stderr
    return done.stdout


@contextmanager
def tshark_of_a_pipe(script: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a tshark that prints a line for each frame that is written to its standard input."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        Path(folder, "pillarbox.lua").write_text(script)
        reader = subprocess.Popen(
            ["tshark", "-l", "-i", "-", "-X", "lua_script:pillarbox.lua"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, "HOME": folder},
            **_ordinary_user(),
        )
        try:
            yield reader
        finally:
            reader.kill()
            with suppress(BrokenPipeError):  # stdin may have data that tshark has not read
                reader.communicate()
