"""Session leader of a command line at the prompt; run as a file, with the line as its argument.

bash runs the line as a job with a process group. The leader takes the terminal back before it
ends, so that the hangup reaches no daemon that the line has started. A job that is stopped, as by
Ctrl-Z, goes on immediately, because no prompt could continue it. (A bash with `set -m` would
report stopped and killed jobs on the terminal.)
"""

from __future__ import annotations

import os
import signal
import sys

# Signals of a terminal (Ctrl-C, Ctrl-Z) that this process ignores, unlike its job.
OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
# Signals that Python ignores; they get their default action again in programs.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
TERMINAL = 0  # file descriptor of the terminal: standard input


def run(line: str) -> int:
    """Run a command line at the terminal; return its exit code, 128 + N after signal N."""
    # programs of the line also survive the terminal's end
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in OF_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(TERMINAL, os.getpid())
        for number in (*OF_TERMINAL, *IGNORED_BY_PYTHON):
            signal.signal(number, signal.SIG_DFL)
        os.execvp("bash", ["bash", "-c", line])
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        os.killpg(job, signal.SIGCONT)
    os.tcsetpgrp(TERMINAL, os.getpgrp())
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]))
