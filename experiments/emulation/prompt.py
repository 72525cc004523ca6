"""The prompt of a running lab: Mininet's, and what can be done to servers, cables and switches."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from mininet.cli import CLI

from experiments.emulation.faults import Fault
from experiments.emulation.lab import Lab
from topos.base.errors import PillarboxError, require

LOAD_S = 1.0
BUSIEST = 12


def _printing(command: Callable[[Any, list[str]], str | None]) -> Callable[[Any, str], None]:
    """Make a command of the prompt from a function of words that returns what to print."""

    def run(self: Any, line: str) -> None:
        try:
            said = command(self, shlex.split(line))
        except (PillarboxError, ValueError, OSError) as error:  # Mininet would end a script
            said = f"*** {error}"
        if said:
            print(said, file=self.stdout, flush=True)

    run.__doc__ = command.__doc__
    return run


class Prompt(CLI):
    """Reads commands until the end; a server is written as its address or its host name."""

    prompt = "pillarbox> "

    def __init__(self, lab: Lab, script: Path | None = None, out: TextIO | None = None) -> None:
        self.lab = lab
        options = {"script": str(script)} if script else {}
        super().__init__(lab.net, **({"stdout": out} if out else {}), **options)

    # -- where packets go ------------------------------------------------------------------------

    @_printing
    def do_path(self, words: list[str]) -> str:
        """path A B: the way of a packet as computed, and as it goes now."""
        source, destination = self._ends(words, "path A B")
        computed = " ".join(self.lab.computed(source, destination)) or "none"
        found = self.lab.trace(source, destination)
        taken = " ".join(found["path"])
        state = "arrived" if found["delivered"] else f"dropped: {found['dropped'] or 'lost'}"
        return f"computed: {computed}\ntaken:    {taken} ({state})"

    @_printing
    def do_why(self, words: list[str]) -> str:
        """why A B: why packets from A to B do, or do not, arrive."""
        source, destination = self._ends(words, "why A B")
        found = self.lab.trace(source, destination)
        lines = [f"a packet went {' '.join(found['path'])}"]
        if found["delivered"]:
            lines.append("and arrived")
        elif found["dropped"]:
            lines.append(f"and was dropped there: {found['dropped']}")
        else:
            lines.append("and was lost behind it: nobody has noticed the failure yet")
        lines += [
            f"in effect: {fault.kind} of {' '.join(self.lab.names_in(fault))}"
            for fault in self.lab.faults.active
        ]
        lines += [f"dead: {self.lab.name(server)}" for server in sorted(self.lab.dead)]
        at = self.lab.node(found["path"][-1])
        state = self.lab.state(at) if at < self.lab.topology.servers else {}
        down = [link["peer"] for link in state.get("links", []) if not link["up"]]
        if down:
            lines.append(f"{self.lab.name(at)} does not hear {' '.join(down)}")
        return "\n".join(lines)

    @_printing
    def do_load(self, _words: list[str]) -> str:
        """load: the busiest ports of the next second."""
        before, start = self.lab.bytes_sent(), time.monotonic()
        time.sleep(LOAD_S)
        after, seconds = self.lab.bytes_sent(), time.monotonic() - start
        rates = {port: (after[port] - before.get(port, 0)) * 8e-6 / seconds for port in after}
        busiest = sorted(rates.items(), key=lambda item: -item[1])[:BUSIEST]
        return "\n".join(f"{name:<12} {rate:10.2f} Mbit/s" for name, rate in busiest if rate > 0)

    @_printing
    def do_status(self, _words: list[str]) -> str:
        """status: what the lab is, what has failed, what was dropped and why."""
        return "\n".join(f"{key}: {value}" for key, value in self.lab.status().items())

    # -- faults ----------------------------------------------------------------------------------

    @_printing
    def do_cut(self, words: list[str]) -> str:
        """cut A B [silent]: cut a cable; silent: no port notices. A switch is written s3."""
        silent = words[2:] == ["silent"]
        require(len(words) == 2 + silent, "write: cut A B, or cut A B silent")
        self.lab.cut(self.lab.node(words[0]), self.lab.node(words[1]), silent=silent)
        return ""

    @_printing
    def do_stop(self, words: list[str]) -> str:
        """stop SWITCH: take the power from a switch."""
        require(len(words) == 1, "write: stop SWITCH")
        self.lab.stop_switch(self.lab.topology.switch(words[0]))
        return ""

    @_printing
    def do_rack(self, words: list[str]) -> str:
        """rack SWITCH: take the power from a switch and from the servers on it."""
        require(len(words) == 1, "write: rack SWITCH")
        self.lab.stop_rack(self.lab.topology.switch(words[0]))
        return ""

    @_printing
    def do_heal(self, words: list[str]) -> str:
        """heal A B, heal SWITCH, heal all: undo what was cut or stopped."""
        require(bool(words), "write: heal A B, heal SWITCH, or heal all")
        chosen = self.lab.faults.active if words == ["all"] else self._faults_of(words)
        for fault in chosen:
            self.lab.heal(fault)
        return ""

    def _faults_of(self, words: list[str]) -> list[Fault]:
        names = {self.lab.topology.node_name(self.lab.node(word)) for word in words}
        found = [
            fault
            for fault in self.lab.faults.active
            if set(fault.what) == names or {fault.what[0]} == names
        ]
        require(bool(found), f"nothing of {' '.join(words)} was cut or stopped")
        return found

    @_printing
    def do_kill(self, words: list[str]) -> str:
        """kill A: let a server die, its forwarder and all its programs."""
        require(len(words) == 1, "write: kill A")
        self.lab.kill(self.lab.server(words[0]))
        return ""

    @_printing
    def do_revive(self, words: list[str]) -> str:
        """revive A: start a dead server anew."""
        require(len(words) == 1, "write: revive A")
        self.lab.revive(self.lab.server(words[0]))
        return ""

    # -- growing and shrinking -------------------------------------------------------------------

    @_printing
    def do_grow(self, words: list[str]) -> str:
        """grow [SERVERS | all]: let servers join; as many as join at once, so many, or all."""
        missing = self.lab.topology.whole.servers - self.lab.topology.servers
        require(missing > 0, f"{self.lab.topology.spec} is whole: no server is missing")
        self.lab.grow(missing if words == ["all"] else _number(words, "grow [SERVERS | all]"))
        return self._size()

    @_printing
    def do_shrink(self, words: list[str]) -> str:
        """shrink [SERVERS]: the last ones to join leave; as many as join at once, or so many."""
        self.lab.shrink(_number(words, "shrink [SERVERS]"))
        return self._size()

    def _size(self) -> str:
        topology = self.lab.topology
        return f"{topology.spec}: {topology.servers} servers, {topology.switches} switches"

    # -- words -----------------------------------------------------------------------------------

    def _ends(self, words: list[str], form: str) -> tuple[int, int]:
        require(len(words) == 2, f"write: {form}")
        return self.lab.server(words[0]), self.lab.server(words[1])

    def default(self, line: str) -> None:
        """Run a program on a server: its address or host name first."""
        first, _, rest = line.partition(" ")
        if first not in self.mn and not first.startswith("#"):
            with suppress(PillarboxError):  # no server: Mininet says what it thinks of the line
                line = f"{self.lab.topology.node_name(self.lab.server(first))} {rest}"
        super().default(line)


def _number(words: list[str], form: str) -> int | None:
    """Return the one number among the words, None where there is no word."""
    require(len(words) < 2 and all(map(str.isdecimal, words)), f"write: {form}")
    return int(words[0]) if words else None
