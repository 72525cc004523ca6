"""The prompt of a running lab: programs on servers, the lab's verbs, and Mininet's commands.

The prompt extends Mininet's. Mininet runs programs in a permanent shell on the node: the shell
receives all input typed meanwhile, and its death is never detected. Here each line is a separate
program (`terminal`). Mininet's commands that send packets or fail links use the lab's verbs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from mininet.cli import CLI

from pillarbox.experiments.lab.emulation.lab import Lab
from pillarbox.experiments.lab.emulation.server_names import line_with_ips, shell_prompt
from pillarbox.experiments.lab.linux.mptcp import line_with_multipath
from pillarbox.experiments.runs.control import network_text
from pillarbox.experiments.runs.control.queries import require_alive
from pillarbox.experiments.runs.control.terminal import run_line
from pillarbox.experiments.runs.control.verbs import VERBS, answer
from pillarbox.experiments.runs.control.workload_progress import one_interrupt, progress_shown
from pillarbox.topos.base.errors import PillarboxError, meant, require

OF_MININET = ("nodes", "net", "links", "intfs", "ports", "dump", "py", "px", "sh", "source", "time")
OWN = (
    ("xterm A", "open a terminal window on a server (needs a display)"),
    ("capture [A[:PORT]]... [-o FILE]", "capture frames for Wireshark, 5 s by default"),
    ("metrics", "print the counters of the lab, as Prometheus reads them"),
    ("page", "open the lab's page and print its address, for a browser on this machine"),
)
CAPTURE_S = 5  # default duration of a capture at the prompt, in seconds
WIDE = 120  # maximum width of the lab prompt's help text, in characters
QUICK_S = 1.0  # time for xterm to report that it cannot open a window, in seconds


class Prompt(CLI):
    """Prompt of a running lab; commands name servers by address or host name."""

    prompt = "pillarbox> "

    def __init__(
        self,
        lab: Lab,
        script: Path | None = None,  # file of command lines to run without a prompt
        out: TextIO | None = None,  # file to which answers are written
        # opens the lab's web page and returns its addresses
        open_page: Callable[[], str] | None = None,
    ) -> None:
        self.lab = lab
        self._open_page = open_page
        self.failed = 0  # number of command lines of the prompt that have failed
        self._reading = 0  # nesting depth of `source` files
        options = {"script": str(script)} if script else {}
        super().__init__(lab.net, **({"stdout": out} if out else {}), **options)

    def onecmd(self, line: str) -> Any:
        """Run a command line of the prompt; print its errors and continue."""
        if line.lstrip().startswith("#"):
            return None
        first, _, rest = line.strip().partition(" ")
        try:
            verb = {"trace": "path", "pingpair": "ping", "pingpairfull": "ping"}.get(first, first)
            if verb in VERBS:
                words = shlex.split(rest, comments=True)
                if verb == "ping" and first != verb:
                    words = [self.lab.name(server) for server in (0, 1)]
                self._print_answer(self._answer(verb, words))
                return None
            return super().onecmd(line)
        except (PillarboxError, ValueError, OSError) as error:
            self._print_error(str(error))
            return None

    def _answer(self, verb: str, words: list[str]) -> str:
        if verb != "run" or not self.isatty():
            return answer(self.lab, verb, words).said
        with one_interrupt(), progress_shown(self.lab, self.stdout):
            return answer(self.lab, verb, words).said

    def completenames(self, text: str, *ignored: object) -> list[str]:
        """Return the commands, servers and switches that complete a word, for Tab."""
        topology = self.lab.topology
        names = [*self._commands(), *map(topology.name, range(topology.nodes))]
        return sorted({name for name in names if name.startswith(text)} - {"EOF"}, key=names.index)

    def completedefault(self, text: str, line: str, begin: int, _end: int) -> list[str]:
        """Return the words that complete a command's argument at the prompt, for Tab."""
        from pillarbox.experiments.runs.control import completion

        first, *given = line[:begin].split()
        topology = self.lab.topology
        if first == "time" and not given:
            return self.completenames(text)
        if first in ("exec", "noecho") and given:
            first, *given = given
        form = VERBS[first].form if first in VERBS else completion.FORMS.get(first)
        if form == "source FILE" or first == "sh":
            return completion.files(text)
        if form is not None:
            return completion.completions_of_argument(topology, form, given, text)
        known = self._server(first) is not None or first in self.mn
        return completion.completions_after_server(topology, given, text) if known else []

    def complete_help(self, text: str, *_: object) -> list[str]:
        """Return the prompt's commands that `help` can explain, for tab completion."""
        return [name for name in self._commands() if name.startswith(text)]

    def preloop(self) -> None:
        """Make Tab complete whole words: addresses contain dots, and cables a hyphen."""
        with suppress(ImportError):
            import readline

            readline.set_completer_delims(" \t\n|;&<>")

    def _print_answer(self, text: str) -> None:
        if text:
            print(text, file=self.stdout, flush=True)

    def _print_error(self, why: str) -> None:
        self.failed += 1
        self._print_answer(f"*** {why}")

    # -- programs --------------------------------------------------------------------------------

    def default(self, line: str) -> None:
        """Run a program on a server or switch; the line begins with the node's address or name."""
        first, _, command = line.strip().partition(" ")
        node = self._node(first)
        topology = self.lab.topology
        ports = self.lab.settings.port_addresses
        line = line_with_ips(topology, command, port_addresses=ports) or self._shell_command(first)
        interactive = not self._reading and self.isatty()
        require(command.strip() != "" or interactive, f"write: {first} COMMAND")
        code, unread = run_line(node, line, self.stdin, self.stdout, interactive=interactive)
        self.cmdqueue.extend(unread)
        if code and first not in self.mn and self._server(first) in self.lab.dead:
            self._print_error(f"{first} died, and the program with it")
        elif code:
            self.failed += 1

    def _shell_command(self, name: str) -> str:
        shown = shell_prompt(self.lab.topology, self.lab.node(name))
        return f"PS1={shlex.quote(shown)} exec bash --norc"

    def _node(self, name: str) -> Any:
        """Return a node by name, on which a program can run."""
        server = self._server(name)
        if server is None:
            require(name in self.mn, self._unknown(name))
            return self.mn[name]
        require_alive(self.lab, server)
        return self.lab.host(server)

    def _unknown(self, name: str) -> str:
        """Return the error message for the unknown first word of a line."""
        first = self.lab.topology.address(0)
        if name[:1].isdigit():
            try:
                self.lab.server(name)
            except PillarboxError as error:
                return str(error)
        if (
            find_spec(f"pillarbox.experiments.cli.commands.{name.replace('-', '_')}")
            if name.isascii()
            else None
        ):
            return f"{name} is a command of another terminal: sudo ./pillarbox {name}"
        wrong = f"there is no command {name!r}, and no such server"
        if shutil.which(name):
            return f"{wrong}: write `{first} {name}` to run it on a server, `sh {name}` outside"
        return f"{wrong}: {meant(name, self._commands(), '`help` lists the commands')}"

    def _server(self, name: str) -> int | None:
        with suppress(PillarboxError):
            return self.lab.server(name)
        return None

    def _commands(self) -> list[str]:
        own = (name[3:] for name in self.get_names() if name.startswith("do_"))
        return [*VERBS, "trace", *own]

    # -- commands of other terminals -------------------------------------------------------------

    def do_exec(self, line: str) -> None:
        """exec [--mptcp] ADDR COMMAND: run a program on a server, like ADDR COMMAND."""
        first, _, rest = line.strip().partition(" ")
        if first == "--mptcp" and rest:
            require(self.lab.settings.multipath, "start the lab with `up --mptcp`")
            server, _, command = rest.strip().partition(" ")
            require(bool(command), "write: exec --mptcp ADDR COMMAND")
            self.default(f"{server} {line_with_multipath(command)}")
            return
        require(line.strip() != "", "write: exec ADDR COMMAND, or ADDR COMMAND")
        require(
            not line.startswith("-"),
            "exec has options in another terminal only: sudo ./pillarbox exec --help",
        )
        self.default(line)

    def do_page(self, line: str) -> None:
        """page: open the lab's page and print its address, for a browser on this machine."""
        elsewhere = f"sudo ./pillarbox page --lab {self.lab.folder.name} {line.strip()}".rstrip()
        require(not line.strip(), f"page has options in another terminal only: {elsewhere}")
        require(self._open_page is not None, f"this prompt opens no page; elsewhere: {elsewhere}")
        assert self._open_page
        self._print_answer(self._open_page())

    def do_metrics(self, line: str) -> None:
        """metrics: print the counters of the lab, as Prometheus reads them."""
        from pillarbox.experiments.runs.control.prometheus import lab_metrics_text

        serve = f"sudo ./pillarbox metrics --lab {self.lab.folder.name} {line.strip()}"
        require(not line.strip(), f"the prompt only prints them; in another terminal: {serve}")
        self._print_answer(lab_metrics_text(self.lab.folder).rstrip())

    def do_capture(self, line: str) -> None:
        """capture [ADDR[:PORT]]... [-o FILE] [--seconds S] [--frames N]: for 5 s by default."""
        from pillarbox.experiments.base.interpreter import module_command

        words = shlex.split(line)
        if not {"--seconds", "--help"} & {word.partition("=")[0] for word in words}:
            words += ["--seconds", str(CAPTURE_S)]
        command = module_command("pillarbox", "capture", "--lab", self.lab.folder.name, *words)
        self.stdout.flush()
        capturing = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.stdout)
        while capturing.returncode is None:
            with suppress(KeyboardInterrupt):  # the capturing program receives Ctrl-C too, and ends
                capturing.wait()
        self.failed += capturing.returncode != 0

    def do_xterm(self, line: str, term: str = "xterm") -> None:
        """xterm ADDR...: open a terminal window on each of the given servers."""
        names = line.split()
        require(bool(names), f"write: {term} {self.lab.topology.address(0)}")
        nodes = [self._node(name) for name in names]
        here = f"write `{names[0]}` for a shell in this terminal"
        display = os.environ.get("DISPLAY", "")
        # The lab has its own network namespace: only a display with a Unix socket is reachable.
        why = "" if display.startswith((":", "unix:")) else "there is no display here"
        why = f"the display {display} is reached by TCP, a lab is not" if display and why else why
        why = why or ("" if shutil.which("xterm") else "xterm is not installed (apt install xterm)")
        require(not why, f"{why}: {here}, or sudo ./pillarbox exec {names[0]} in another terminal")
        for name, node in zip(names, nodes, strict=True):
            title = f"{name} {self.lab.topology.kind}"
            command = ["xterm", "-T", title, "-e", "bash", "-c", self._shell_command(name)]
            window = node.program(command, stdin=subprocess.DEVNULL, start_new_session=True)
            with suppress(subprocess.TimeoutExpired):
                window.wait(QUICK_S)
            require(not window.returncode, f"xterm could not open a window on {display}: {here}")

    do_gterm = do_x = do_xterm

    # -- Mininet's commands ----------------------------------------------------------------------

    def do_nodes(self, _line: str) -> None:
        """nodes: list servers and switches."""
        self._print_answer(network_text.nodes_text(self.lab.topology))

    def do_net(self, _line: str) -> None:
        """net: show the far end of each port."""
        self._print_answer(network_text.port_peers_text(self.lab.topology))

    def do_links(self, _line: str) -> None:
        """links: show each cable with its state."""
        self._print_answer(network_text.cables_table(self.lab.topology, self.lab.failures()))

    def do_dump(self, _line: str) -> None:
        """dump: list servers with host name, IP address and ports, and switches with ports."""
        self._print_answer(network_text.nodes_table(self.lab.topology, self.lab.failures()))

    def do_intfs(self, _line: str) -> None:
        """intfs: list the interfaces of servers and switches."""
        own = ["dcn0"] if self.lab.relays else []
        self._print_answer(network_text.interfaces_table(self.lab.topology, own))

    do_ports = do_net

    def do_link(self, line: str) -> None:
        """link A B up|down: repair or cut a cable, like `heal A-B` and `cut A-B`."""
        words = line.split()
        verb = {"up": "heal", "down": "cut"}.get(words[-1] if words else "")
        require(len(words) == 3 and verb is not None, "write: link A B up, or link A B down")
        self.onecmd(f"{verb} {words[0]}-{words[1]}")

    def do_switch(self, line: str) -> None:
        """switch SWITCH start|stop: start or stop a switch, as `heal` and `stop` do."""
        words = line.split()
        verb = {"start": "heal", "stop": "stop"}.get(words[-1] if words else "")
        require(len(words) == 2 and verb is not None, "write: switch s0 start, or switch s0 stop")
        self.onecmd(f"{verb} {words[0]}")

    def do_pingallfull(self, _line: str) -> None:
        """pingallfull: ping between all pairs of servers, with each round-trip time in ms."""
        for source, row in answer(self.lab, "pingall", []).data["ms"].items():
            times = (f"{name} {'X' if ms is None else f'{ms:.2f}'}" for name, ms in row.items())
            self._print_answer(f"{source} -> {', '.join(times)}")

    def do_iperfudp(self, _line: str) -> None:
        """iperfudp: not supported; run iperf3 -u on two servers."""
        raise PillarboxError("write: B iperf3 -s &, and then: A iperf3 -u -b 10M -c B")

    def do_noecho(self, line: str) -> None:
        """noecho ADDR COMMAND: run a program on a server, like ADDR COMMAND."""
        self.onecmd(line)

    def do_source(self, line: str) -> None:
        """source FILE: run the lines of a file."""
        try:
            lines = Path(line.strip()).read_text().splitlines()
        except OSError as error:
            raise PillarboxError(f"{line.strip()} cannot be read: {error.strerror}") from None
        self._reading += 1
        try:
            for one in lines:
                if self.onecmd(one):
                    return
        finally:
            self._reading -= 1

    def do_help(self, line: str) -> None:
        """help [COMMAND]: list all commands, or explain one."""
        if line in VERBS:
            self._print_answer(f"{VERBS[line].form}: {VERBS[line].about}")
        elif line:
            super().do_help(line)
        else:
            self._print_answer(self._help())

    def _help(self) -> str:
        """Return the list of commands, no wider than the terminal."""
        from pillarbox.experiments.runs.control.completion import traffic_patterns

        topology, width = self.lab.topology, min(WIDE, shutil.get_terminal_size((80, 24)).columns)
        first, last = topology.address(0), topology.address(topology.servers - 1)
        programs = [
            [f"{first} ping -c 3 {last}", "run a program, or a shell's line, on a server"],
            [f"{first} iperf3 -s &", "the same in the background"],
            [first, "open a shell on a server"],
        ]
        rows = [*programs, *([verb.form, verb.about] for verb in VERBS.values()), *OWN]
        notes = [
            f"A and B are servers: {last}, or its host name h{topology.servers - 1}. "
            f"s0 is a switch. Inside a program write h{topology.servers - 1}: {last} alone is "
            "an IPv4 address there.",
            "path, trace and why send one packet: trace is another name of path; why adds the "
            "failures and the command that helps.",
            f"Patterns of run: {', '.join(traffic_patterns())}.",
            "Tab completes; `help COMMAND` explains one; the same commands work in another "
            f"terminal: sudo ./pillarbox path {first} {last}.",
            f"From Mininet: {' '.join(OF_MININET)}; exit, or Ctrl-D, ends the lab.",
        ]
        return "\n".join([_listed(rows, width), "", *(_paragraph(note, width) for note in notes)])


def _paragraph(text: str, width: int) -> str:
    return textwrap.fill(text, width - 1, subsequent_indent="  ", break_on_hyphens=False)


def _listed(rows: Sequence[Sequence[str]], width: int) -> str:
    """Return command forms with descriptions; a description after a long form gets its own line."""
    most = max(len(form) for form, _ in rows if len(form) <= width // 3)
    lines = []
    for form, about in rows:
        indent = " " * (most + 2)
        text = textwrap.wrap(about, width - most - 3)
        if len(form) <= most:
            text[0] = f"{form:<{most}}  {text[0]}"
        else:
            lines.append(form)
            text[0] = indent + text[0]
        lines += [text[0], *(indent + line for line in text[1:])]
    return "\n".join(lines)


def run(lab: Lab, script: Path | None = None, open_page: Callable[[], str] | None = None) -> int:
    """Run a lab's prompt or a script of its commands; return the number of failed lines."""
    prompt = Prompt(lab, script, open_page=open_page)
    sys.stdout.flush()
    return prompt.failed if script else 0
