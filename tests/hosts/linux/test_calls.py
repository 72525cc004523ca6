"""System calls that Python does not offer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHORT = "from hosts.linux.calls import run_in_short_turns as short\nshort()\n"


def slice_of(program: str) -> str:
    """Return what the kernel says of a process that runs those lines, and of its turns."""
    lines = program + "print(open('/proc/self/sched').read())"
    done = subprocess.run([sys.executable, "-c", lines], check=True, capture_output=True, text=True)
    return next(line.split()[-1] for line in done.stdout.splitlines() if "slice" in line)


@pytest.mark.skipif(
    "slice" not in Path("/proc/self/sched").read_text(), reason="this kernel tells no turns"
)
def test_turns_become_short_and_niceness_stays() -> None:
    assert int(slice_of(SHORT)) == 100_000 < int(slice_of(""))
    assert slice_of("import os; os.nice(7)\n" + SHORT) == "100000"
    done = subprocess.run(
        [sys.executable, "-c", f"import os; os.nice(7)\n{SHORT}print(os.nice(0))"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert int(done.stdout) == os.getpriority(os.PRIO_PROCESS, 0) + 7
