"""Pillarbox in Python: live networks from scripts, from pytest and from notebooks.

A lab is a process of its own, as `pillarbox up` makes it, which other terminals see. It ends with
its block, with `close`, and with this process, however that ends. What can be done to it is asked
of its socket (`experiments.control`), and what is refused raises `PillarboxError`.

Examples
--------
>>> import pillarbox
>>> with pillarbox.lab("dcell,4,1", rate_mbit=100) as lab:                # doctest: +SKIP
...     lab.cut("0.3", "4.0")
...     print(lab.path("0.0", "4.3"), lab.ping("0.0", "4.3").ms)
...     print(lab.iperf("0.0", "4.3", seconds=2).mbit)
...     flows = lab.run(pillarbox.AllToAll(volume="1MB"))
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.control.client import ask
from experiments.control.lasting import READY
from experiments.emulation.registry import LABS
from experiments.interpreter import module_command
from topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "AllToAll",
    "Change",
    "Iperf",
    "Lab",
    "OneToAll",
    "OneToOne",
    "Permutation",
    "PillarboxError",
    "Ping",
    "Traffic",
    "Way",
    "lab",
]

END_S = 30.0  # for a lab to end by itself
BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


class Change(NamedTuple):
    """What was done to a lab, and after how many ms each server had noticed."""

    did: str
    noticed_ms: dict[str, float]
    not_noticed: list[str]


class Way(NamedTuple):
    """The servers that a packet came to, and what became of it; `computed` is what is expected."""

    servers: list[str]
    delivered: bool
    dropped: str  # why
    lost_to: str  # where it was sent last, if it never came there
    computed: list[str]

    def __str__(self) -> str:
        """Return the addresses, and what is amiss."""
        text = " ".join(self.servers)
        lost = self.dropped or (f"lost on the way to {self.lost_to}" if self.lost_to else "lost")
        return text if self.delivered else f"{text} ({lost})"


class Ping(NamedTuple):
    """An echo: its round trip in ms, None where nothing came back."""

    source: str
    destination: str
    ms: float | None


class Iperf(NamedTuple):
    """What one TCP connection has delivered."""

    source: str
    destination: str
    mbit: float  # a second
    seconds: float
    bytes: int
    retransmits: int | None
    tool: str


class Traffic:
    """Flows between servers, by the name of a pattern (docs/experiments.md).

    Parameters
    ----------
    pattern : str
        Such as ``all-to-all``.
    volume : str or int, optional
        Of each flow, in bytes, or as ``1MB``.
    seconds : float, optional
        How long each flow lasts instead.
    options
        Of the pattern, and of the workload: ``tool="iperf3"`` instead of the built-in generator.
    """

    def __init__(
        self,
        pattern: str,
        *,
        volume: str | int | None = None,
        seconds: float | None = None,
        **options: object,
    ) -> None:
        require((volume is None) != (seconds is None), "traffic has either a volume, or seconds")
        amount = {"duration_s": seconds} if volume is None else {"volume_bytes": _bytes(volume)}
        values = {"tool": "generator", **amount, **options}
        self.words = [pattern, *(f"{name}={value}" for name, value in values.items())]


AllToAll = partial(Traffic, "all-to-all")
OneToAll = partial(Traffic, "one-to-all")
OneToOne = partial(Traffic, "one-to-one")
Permutation = partial(Traffic, "permutation")


def lab(network: str, **options: object) -> Lab:
    """Bring a network up; see `Lab`."""
    return Lab(network, **options)


class Lab:
    """A network that runs, in a process of its own.

    Parameters
    ----------
    network : str
        Such as ``dcell,4,1``.
    options
        Those of `pillarbox up`: ``routing``, ``plane``, ``timers``, ``rate_mbit``, ``mtu``,
        ``delay``, ``loss``, ``queue``, ``queue_length``, ``seed``.
    """

    def __init__(self, network: str, **options: object) -> None:
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        with tempfile.TemporaryFile() as errors:
            self._process = subprocess.Popen(
                module_command("experiments", "up", network, "--hold", *words),
                stdin=subprocess.PIPE,  # its end is the lab's
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for this process
            )
            try:
                said = self._until_ready()
            except BaseException:
                self.close()
                raise
            errors.seek(0)
            why = errors.read().decode().strip().removeprefix("pillarbox: ")
        number = re.match(r"lab (\d+)", said)
        if number is None:
            self.close()
            raise PillarboxError(why or f"the lab has ended: {said}")
        self.number = int(number[1])
        self.network = network

    def _until_ready(self) -> str:
        assert self._process.stdout
        text = b""
        while not text.endswith(READY):
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                break
            text += more
        return text.removesuffix(READY).decode()

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<lab {self.number}: {self.network}>"

    def close(self) -> None:
        """End the lab, and wait until nothing of it is left; once more does no harm."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # and the kernel everything in its sandbox
            self._process.wait()
        self._process.stdout.close()

    def ask(self, verb: str, *words: str) -> dict[str, Any]:
        """Return what a verb of the prompt answers, as data."""
        require(self._process.poll() is None, "this lab has ended: make another")
        answer: dict[str, Any] = ask(LABS / str(self.number), ask=verb, words=list(words))
        return answer

    # -- faults ----------------------------------------------------------------------------------

    def fault(self, text: str) -> Change:
        """Let something fail, as it is written everywhere: ``cut 0.3-4.0 silent``, ``kill 1.3``."""
        return self._change(*text.split())

    def cut(self, a: str, b: str, *, silent: bool = False) -> Change:
        """Cut the cable between two nodes; silently: no port notices."""
        return self._change("cut", f"{a}-{b}", *(["silent"] if silent else []))

    def heal(self, *what: str) -> Change:
        """Mend a cable, by its ends, or a switch; everything, if nothing is named."""
        return self._change("heal", "-".join(what) or "all")

    def stop(self, switch: str) -> Change:
        """Take the power from a switch."""
        return self._change("stop", switch)

    def rack(self, switch: str) -> Change:
        """Take the power from a switch and from the servers on it."""
        return self._change("rack", switch)

    def kill(self, server: str) -> Change:
        """Let a server die."""
        return self._change("kill", server)

    def revive(self, server: str) -> Change:
        """Start a dead server anew."""
        return self._change("revive", server)

    def cable(self, a: str, b: str, **values: object) -> Mapping[str, Any]:
        """Change ``rate_mbit``, ``delay`` or ``loss`` of a cable; without any it is as usual."""
        given = (f"{name}={value}" for name, value in values.items())
        found = self.ask("cable", f"{a}-{b}", *given)
        del found["said"]
        return found

    def _change(self, verb: str, *words: str) -> Change:
        found = self.ask(verb, *words)
        return Change(found["did"], found.get("noticed_ms", {}), found.get("not_noticed", []))

    # -- looking, and measuring ------------------------------------------------------------------

    def status(self, server: str | None = None) -> Mapping[str, Any]:
        """Return how the lab is, or what a server knows."""
        found = self.ask("status", *([server] if server else []))
        del found["said"]
        return found

    def path(self, source: str, destination: str) -> Way:
        """Return the way of a packet, as it goes now."""
        found = self.ask("path", source, destination)
        ended = found["delivered"], found["dropped"], found["lost_to"]
        return Way(found["path"], *ended, found["computed"])

    def why(self, source: str, destination: str) -> list[str]:
        """Return why packets do, or do not, arrive."""
        sentences: list[str] = self.ask("why", source, destination)["because"]
        return sentences

    def ping(self, source: str, destination: str) -> Ping:
        """Send an echo."""
        found = self.ask("ping", source, destination)
        return Ping(found["source"], found["destination"], found["ms"])

    def iperf(self, source: str, destination: str, seconds: float = 2.0) -> Iperf:
        """Send one TCP flow."""
        found = self.ask("iperf", source, destination, f"{seconds:g}")
        return Iperf(*(found[name] for name in Iperf._fields))

    def run(self, traffic: Traffic) -> pd.DataFrame:
        """Send flows; return a row for each, as docs/records.md has them.

        Its ``attrs`` are the trial: ``valid`` and ``verdict``, ``goodput_bps``, ``ideal_bps``.
        """
        import pandas as pd

        found = self.ask("run", *traffic.words)
        rows = pd.DataFrame(found.pop("rows"))
        del found["said"]
        rows.insert(0, "valid", found["valid"])
        rows.attrs = found
        return rows


def _bytes(volume: str | int) -> int:
    """Return a volume in bytes.

    >>> _bytes("1.5MB"), _bytes(70)
    (1500000, 70)
    """
    read = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMG]?)B?", str(volume))
    if read is None:
        raise PillarboxError(f"{volume!r} is no volume: write bytes, or 1MB")
    return round(float(read[1]) * BYTES[read[2]])
