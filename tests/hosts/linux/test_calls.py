"""System calls that Python does not offer."""

import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.hosts.linux.calls import readable

SHORT = "from pillarbox.hosts.linux.calls import request_short_time_slices as short\nshort()\n"


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


def test_files_are_waited_for_whatever_their_descriptors_are() -> None:
    """`select.select` refuses those that a lab of hundreds of servers has."""
    least = 1100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * least:
        pytest.skip("this process may not have so many open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * least), hard))
    near, far = socket.socketpair()
    high = fcntl.fcntl(near, fcntl.F_DUPFD_CLOEXEC, least)
    other, silent = socket.socketpair()
    with near, far, other, silent, os.fdopen(high, "rb", buffering=0) as file:
        assert readable([file, other]) == []
        far.send(b"!")
        assert readable([other, file], None) == [file]
        far.close()
        assert file.read(1) == b"!"
        assert readable([file, other], 0.0) == [file]  # its end can be read as well
    with pytest.raises(ValueError, match="closed"):
        readable([near])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_handler_that_runs_meanwhile_does_not_end_the_waiting() -> None:
    near, far = socket.socketpair()
    before = signal.signal(signal.SIGALRM, lambda *_: far.send(b"!"))
    with near, far:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert readable([near], 60.0) == [near]
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("busy", ["signal.pause()", "os.kill(os.getpid(), signal.SIGSTOP)"])
def test_a_process_ends_with_the_last_writer_of_its_lifeline(busy: str) -> None:
    lifeline, held = os.pipe()
    told, tells = os.pipe()
    lines = "import os, signal\nfrom pillarbox.hosts.linux.calls import die_with_last_writer\n"
    lines += f"die_with_last_writer({lifeline})\n"
    lines += f"os.write({tells}, b'!')\n{busy}\n"
    with subprocess.Popen([sys.executable, "-c", lines], pass_fds=[lifeline, tells]) as process:
        assert os.read(told, 1) == b"!"
        os.close(held)
        assert process.wait(60) == -signal.SIGKILL
    with subprocess.Popen([sys.executable, "-c", lines], pass_fds=[lifeline, tells]) as process:
        assert process.wait(60) == -signal.SIGKILL  # it began too late
    for each in (lifeline, told, tells):
        os.close(each)
