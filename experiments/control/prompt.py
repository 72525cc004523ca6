"""The prompt of a running lab: programs on servers, the lab's own verbs, and what Mininet's has.

It is Mininet's prompt with other hands. Mininet runs programs in a shell that stays on the node: to
it goes what is typed meanwhile, and its death is never noticed. Here each line is a program of its
own (`terminal`). Mininet's commands that send packets or fail links do so by the lab's verbs.
"""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from mininet.cli import CLI

from experiments.control.looks import require_alive
from experiments.control.showing import one_interrupt, shown
from experiments.control.terminal import run_line
from experiments.control.verbs import VERBS, answer
from experiments.emulation.lab import Lab
from experiments.emulation.names import line_with_ips, shell_prompt
from experiments.text import columns
from topos.base.errors import PillarboxError, meant, require

OF_MININET = ("nodes", "net", "links", "intfs", "ports", "dump", "py", "px", "sh", "source", "time")
EXAMPLES = """\
ADDR COMMAND       run a program on a server, or a shell's line; without a command, a shell
                   0.0 ping -c 3 4.3      0.0 iperf3 -s &      0.3 ip route | head -1
                   4.3 is its address, h19 its host's name; s0 is a switch
"""


class Prompt(CLI):
    """Reads commands until the end; a server is written as its address or its host name."""

    prompt = "pillarbox> "

    def __init__(
        self,
        lab: Lab,
        script: Path | None = None,  # a file of lines to be run instead
        out: TextIO | None = None,  # where answers go
    ) -> None:
        self.lab = lab
        self.failed = 0  # lines that did not do what they say
        self._reading = 0  # files, one within another
        options = {"script": str(script)} if script else {}
        super().__init__(lab.net, **({"stdout": out} if out else {}), **options)

    def onecmd(self, line: str) -> Any:
        """Run a line; whatever is wrong with it is said, and the prompt goes on."""
        if line.lstrip().startswith("#"):
            return None
        first, _, rest = line.strip().partition(" ")
        try:
            verb = {"trace": "path", "pingpair": "ping"}.get(first, first)
            if verb in VERBS:
                words = shlex.split(rest, comments=True)
                if first == "pingpair":
                    words = [self.lab.name(server) for server in (0, 1)]
                self._say(self._answer(verb, words))
                return None
            return super().onecmd(line)
        except (PillarboxError, ValueError, OSError) as error:
            self._fail(str(error))
            return None

    def _answer(self, verb: str, words: list[str]) -> str:
        if verb != "run" or not self.isatty():
            return answer(self.lab, verb, words).said
        with one_interrupt(), shown(self.lab, self.stdout):
            return answer(self.lab, verb, words).said

    def completenames(self, text: str, *ignored: Any) -> list[str]:
        """Return the commands that begin like that."""
        return super().completenames(text) + [verb for verb in VERBS if verb.startswith(text)]

    def _say(self, text: str) -> None:
        if text:
            print(text, file=self.stdout, flush=True)

    def _fail(self, why: str) -> None:
        self.failed += 1
        self._say(f"*** {why}")

    # -- programs --------------------------------------------------------------------------------

    def default(self, line: str) -> None:
        """Run a program on a server or switch: its address or name first."""
        first, _, command = line.strip().partition(" ")
        node = self._node(first)
        topology = self.lab.topology
        line = line_with_ips(topology, command) or self._shell(first)
        interactive = not self._reading and self.isatty()
        require(command.strip() != "" or interactive, f"write: {first} COMMAND")
        code, unread = run_line(node, line, self.stdin, self.stdout, interactive=interactive)
        self.cmdqueue.extend(unread)
        if code and first not in self.mn and self._server(first) in self.lab.dead:
            self._fail(f"{first} died, and the program with it")
        elif code:
            self.failed += 1

    def _shell(self, name: str) -> str:
        shown = shell_prompt(self.lab.topology, self.lab.node(name))
        return f"PS1={shlex.quote(shown)} exec bash --norc"

    def _node(self, name: str) -> Any:
        """Return the node on which a program can run."""
        server = self._server(name)
        if server is None:
            hint = meant(name, self._commands(), "`help` tells what there is")
            require(name in self.mn, f"there is no command {name!r}, and no such server: {hint}")
            return self.mn[name]
        require_alive(self.lab, server)
        return self.lab.host(server)

    def _server(self, name: str) -> int | None:
        with suppress(PillarboxError):
            return self.lab.server(name)
        return None

    def _commands(self) -> list[str]:
        return [*VERBS, *(name[3:] for name in self.get_names() if name.startswith("do_"))]

    # -- Mininet's commands ----------------------------------------------------------------------

    def do_link(self, line: str) -> None:
        """link A B up|down: as `heal A-B` and `cut A-B`."""
        words = line.split()
        verb = {"up": "heal", "down": "cut"}.get(words[-1] if words else "")
        require(len(words) == 3 and verb is not None, "write: link A B up, or link A B down")
        self.onecmd(f"{verb} {words[0]}-{words[1]}")

    def do_switch(self, line: str) -> None:
        """switch SWITCH start|stop: as `heal SWITCH` and `stop SWITCH`."""
        words = line.split()
        verb = {"start": "heal", "stop": "stop"}.get(words[-1] if words else "")
        require(len(words) == 2 and verb is not None, "write: switch s0 start, or switch s0 stop")
        self.onecmd(f"{verb} {words[0]}")

    def do_pingallfull(self, _line: str) -> None:
        """pingallfull: as `pingall`, with each round trip in ms."""
        for source, row in answer(self.lab, "pingall", []).data["ms"].items():
            times = (f"{name} {'X' if ms is None else f'{ms:.2f}'}" for name, ms in row.items())
            self._say(f"{source} -> {', '.join(times)}")

    def do_iperfudp(self, _line: str) -> None:
        """iperfudp: there is none; run iperf3 -u on two servers."""
        raise PillarboxError("write: B iperf3 -s &, and then: A iperf3 -u -b 10M -c B")

    def do_noecho(self, line: str) -> None:
        """noecho ADDR COMMAND: as without noecho."""
        self.onecmd(line)

    def do_source(self, line: str) -> None:
        """source FILE: run the lines of a file."""
        self._reading += 1
        try:
            for one in Path(line.strip()).read_text().splitlines():
                if self.onecmd(one):
                    return
        finally:
            self._reading -= 1

    def do_help(self, line: str) -> None:
        """help [COMMAND]: what there is."""
        if line in VERBS:
            self._say(f"{VERBS[line].form}: {VERBS[line].about}")
        elif line:
            super().do_help(line)
        else:
            rows = [[verb.form, verb.about] for verb in VERBS.values()]
            mininets = f"From Mininet: {' '.join(OF_MININET)}; exit, or Ctrl-D, ends the lab."
            self._say("\n".join([EXAMPLES, columns(rows), "", mininets]))


def run(lab: Lab, script: Path | None = None) -> int:
    """Give the prompt until its end; return how many lines of a script have failed."""
    prompt = Prompt(lab, script)
    sys.stdout.flush()
    return prompt.failed if script else 0
