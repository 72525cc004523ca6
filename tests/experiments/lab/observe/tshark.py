"""tshark with our dissector, as who is not root: as root, Wireshark 4.4 loads no Lua scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

needs_tshark = pytest.mark.skipif(not shutil.which("tshark"), reason="there is no tshark")
NOBODY = 65534


def tshark(capture: Path, script: str, *options: str) -> str:
    """Return what it prints of a capture."""
    anybody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
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
            **anybody,
        )
    assert "Lua" not in done.stderr, done.stderr
    return done.stdout
