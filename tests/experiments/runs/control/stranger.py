"""What a stranger types in the first hour: lines at the prompt, and what each has to answer."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pillarbox import topos
from pillarbox.topos.base.topology import Topology
from tests.experiments.labs import wait_until
from tests.experiments.runs.control.test_commands import CALM, Terminal, processes, up

READY = "pillarbox> "
# Python's words, which no answer may have.
NOT_FOR_USERS = r"\\x1b|Traceback|\{'|<\S+ object at|<Lab\w+ "
NO_DISPLAY = "there is no display here|is reached by TCP|xterm is not installed"
# A line, with A and B for the first and the last server, and what its answer has to contain, as a
# regular expression.
LINES = (
    ("help", "Patterns of run: one-to-one"),
    ("?", "exit, or"),
    ("help run", "run PATTERN"),
    ("help nosuch", r"\*\*\* "),
    ("", ""),
    ("nodes", "servers: A"),
    ("net", r"A +port 0: s0 port"),
    ("links", r"A-s0 +ok"),
    ("dump", r"A +h0 +1\d\.0\.0\.\d+ +ok"),
    ("intfs", r"A .*h0-eth0"),
    ("ports", r"A +port 0: s0 port"),
    ("status", r"faults +none"),
    ("status A", "server A|A is alive"),
    ("status 99.99", "is not a server"),
    ("path A B", r"taken: +A .*B \(arrived\)"),
    ("trace A B", r"\(arrived\)"),
    ("path A B all", "disjoint"),
    ("path A", r"write: path A B"),
    ("why A B", r"a packet went A .*\(arrived\)"),
    ("ping A B", "an answer from B to A"),
    ("ping A A", "are the same server"),
    ("pingpair", "an answer from"),
    ("A ping -c 1 -W 5 B", "1 received"),
    ("A ping -c 1 -W 1 9.9", "is not a server of .*; ping would send to 9.0.0.9"),
    ("h0 ping -c 1 -W 5 h1", "1 received"),
    ("A hostname", r"\bh0\b"),
    ("A getent hosts h1", r"1\d\.0\.0\.\d+ .*h1"),
    ("A ip addr show dev lo", "LOOPBACK"),
    ("A ls | head -1", r"\w"),
    ("A nosuchprogram", "not found"),
    ("A iperf3 -s -p 5300 &", ""),
    ("A iperf3 -s -D -p 5301", ""),
    ("A python3 -m http.server 8099 >/dev/null 2>&1 &", ""),
    ("B until iperf3 -c A -p 5300 -t 1; do sleep 0.1; done", "receiver"),
    ("B iperf3 -c A -p 5301 -t 1", "receiver"),
    ("B until curl -sI A:8099; do sleep 0.1; done", "200 OK"),
    ("exec A echo it is $((40 + 2))", "it is 42"),
    ("xterm A", NO_DISPLAY),
    ("xterm", "write: xterm A"),
    ("page", r"page: http://127\.0\.0\.1:\d+/.*to watch only: http"),
    ("metrics", 'pillarbox_lab_info{network="SPEC"'),
    ("capture A -o FILE --seconds 1", r"\d+ frames in"),
    ("capture A -o FILE --frames 3 --force", r"\b[0-3] frames in"),
    ("load", r"from +to +Mbit/s"),
    ("iperf A B 1", "Mbit/s from A to B"),
    ("iperf", "write: iperf A B"),
    ("pingall", r"% dropped \(\d+/\d+ received\)"),
    ("ls", "write `A ls` to run it on a server"),
    ("down", "sudo ./pillarbox down"),
    ("topo", "sudo ./pillarbox topo"),
    ("quti", "did you mean quit"),
    ("time ping A B", "Elapsed time"),
    ("py net.hosts[0].name", "h0"),
    ("py nosuch", "nosuch"),
    ("sh echo outside", "outside"),
    ("source /nosuch", "/nosuch cannot be read: No such file"),
    ("run", "write: run PATTERN"),
    ("run all-redcue", "did you mean all-reduce"),
    ("# a comment", ""),
)
# A fault of each kind, what is asked meanwhile, and the end of it.
FAULTS = (
    ("cut A-s0", "A-s0 is cut"),
    ("why A B", r"in effect: cut A-s0 \(to repair: heal A-s0\)"),
    ("links", r"A-s0 +cut"),
    ("heal A-s0", "A-s0 repaired"),
    ("cut A-s0 silent", "drops all frames"),
    ("why A B", "in effect: cut A-s0 silent"),
    ("heal all", "A-s0 repaired"),
    ("stop s0", "s0 has stopped"),
    ("why A B", r"in effect: stop s0 \(to repair: heal s0\)"),
    ("heal s0", "s0 repaired"),
    ("rack s0", "s0 has stopped, and .*A"),
    ("A ls", "A is dead: revive A"),
    ("status", r"faults +rack s0"),
    ("heal all", "s0 repaired"),
    ("kill B", "B is dead"),
    ("why A B", "B is dead: revive B"),
    ("status B", "B is dead: revive B"),
    ("status", r"dead +B"),
    ("revive B", "B is alive again"),
    ("cable A-s0 rate_mbit=50", "A-s0 is now: 50 Mbit/s"),
    ("cable A-s0", "A-s0 is as usual now"),
    ("link A s0 down", "A-s0 is cut"),
    ("link A s0 up", "A-s0 repaired"),
    ("cut A-B", "no cable joins|is cut"),
    ("heal all", "repaired|nothing was cut"),
    ("kill 99.99", "is not a server"),
    ("heal s0", "nothing of s0 was cut"),
)


class Prompt:
    """The prompt of a lab at a terminal, and what it answers to each line."""

    def __init__(self, terminal: Terminal, topology: Topology, file: Path) -> None:
        self._terminal, self._topology, self._file = terminal, topology, file

    def check(self, line: str, wanted: str) -> None:
        """Type a line, wait for the next prompt, and compare the answer."""
        line, pattern = self._filled(line, quote=False), self._filled(wanted, quote=True)
        began_s = time.monotonic()
        answer = self.answer(f"{line}\n")
        took_s = time.monotonic() - began_s
        text = _last_text(answer)
        print(f"| `{line}` | {took_s:.1f} | {text.splitlines()[0] if text else ''} |")
        assert not re.search(NOT_FOR_USERS, answer), answer
        assert text or not wanted, f"{line!r} has no answer"
        assert re.search(pattern, answer, re.DOTALL), f"{line!r}, not {pattern!r}: {answer}"

    def answer(self, typed: str) -> str:
        before = len(self._terminal.shown)
        self._terminal.type(typed)
        self._terminal.shows(READY)
        return self._terminal.shown[before + len(typed) :]

    def _filled(self, text: str, *, quote: bool) -> str:
        topology = self._topology
        first, last = topology.address(0), topology.address(topology.servers - 1)
        values = {"A": first, "B": last, "FILE": str(self._file), "SPEC": topology.spec}
        if text.startswith("write: ") and "xterm" not in text:
            return text  # a form, where A and B stand for themselves
        for name, value in values.items():
            text = re.sub(rf"\b{name}\b", re.escape(value) if quote else value, text)
        return text


def _last_text(answer: str) -> str:
    """Return an answer without the prompt, and without the states of progress it has replaced."""
    text = re.sub(r"[^\r\n]*\r\x1b\[K", "", answer.removesuffix(READY))
    return text.replace("\r\n", "\n").strip()


@contextmanager
def prompt_of(spec: str, folder: Path) -> Iterator[Prompt]:
    """Bring a lab up at a terminal; end it, and wait until none of its processes is left."""
    before = processes()
    began_s = time.monotonic()
    with up(spec, *CALM) as terminal:
        print(f"\n### {spec}\n\n| line | seconds | first line of the answer |\n| - | - | - |")
        print(f"| `sudo ./pillarbox up {spec}` | {time.monotonic() - began_s:.1f} | |")
        yield Prompt(terminal, topos.parse(spec), folder / "lab.pcapng")
        terminal.type("exit\n")
        assert terminal.ended() == 0
    wait_until(lambda: processes() <= before, "a process is left")
