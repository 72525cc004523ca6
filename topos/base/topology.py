"""The contract of a network: what is wired to what, answered by arithmetic.

Servers are the dense integers ``0 .. servers-1`` and switches ``0 .. switches-1``; a *node* is
either: servers first, so that switch ``s`` is node ``servers + s``. Nothing is stored. A network
says what is plugged into a port (`server_plug`, `switch_plug`), how a server's number splits into
the paper's digits (`digits`, `server_at`), and what its paper claims (`bounds`); everything else,
from peers to arrays of all cables, follows here and holds for every network.

The wiring and address functions that take a `Number` answer for one server (``int``) or for a
whole numpy array, by the same code. They do not check their arguments; the functions that read
text (`server`, `switch`) do.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from topos.base.addressing import UidAddresses
from topos.base.errors import PillarboxError, require
from topos.base.layout import Layout, grid_layout
from topos.base.polymorphic import NOTHING, Number

if TYPE_CHECKING:
    from topos.base.arrays import CableArrays

# Server numbers, DCell's header fields and IPv4 addresses are 32 bits wide (Guo 2008, Fig. 10).
MOST_SERVERS = 2**32


class Plug(NamedTuple):
    """What is at the other end of a port's cable: a node and its port, and the cable's level.

    `node` is NOTHING where no cable is plugged in; port and level then mean nothing.
    """

    # Any stands for: int when asked about one node, numpy array when asked about many.
    node: Any
    port: Any
    level: Any


class Cable(NamedTuple):
    """One cable, both ends named: ``a`` is a server, or a switch below switch ``b``."""

    a: int
    a_port: int
    b: int
    b_port: int
    level: int


class Bound(NamedTuple):
    """A number the paper gives for the whole network, with its formula and where it stands.

    `value` is None where the paper proves none, as for some partial networks.
    """

    value: float | None
    formula: str
    source: str


class Topology(UidAddresses, ABC):
    """A network of servers and switches; see the module's text for the model.

    The parameters of a subclass's ``__init__`` are those of its spec: whole numbers, the optional
    ones None by default. It checks them, hands them to this class, sets the counts below, and
    calls `check_size` last.
    """

    # Specs of small instances: contract tests run over them, help texts and documents quote them.
    examples: ClassVar[tuple[str, ...]] = ()
    title: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    # True where a cable may join two switches.
    switches_interconnect: ClassVar[bool] = False
    # How many servers a partial network grows by; 0 where a paper has no partial ones.
    growth: int = 0

    parameters: dict[str, int]  # of the spec, by name; optional ones only where given
    servers: int
    switches: int
    cables: int
    ports: int  # of each server
    switch_ports: int  # of the switch with the most ports

    # -- what a network must say ---------------------------------------------------------------

    @abstractmethod
    def server_plug(self, server: Number, port: int) -> Plug:
        """Return what the server's port is cabled to."""

    @abstractmethod
    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return what the switch's port is cabled to."""

    @abstractmethod
    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the paper's address of a server, most significant digit first."""

    @abstractmethod
    def server_at(self, digits: Sequence[Number]) -> Number:
        """Return the server that has these digits (not checked: see `server`)."""

    @abstractmethod
    def radices(self) -> tuple[int, ...]:
        """Return how many values each digit of an address can take."""

    @abstractmethod
    def switch_label(self, switch: int) -> str:
        """Return how the paper, or a reader of it, would call the switch."""

    @abstractmethod
    def diameter_bound(self) -> Bound:
        """Return the paper's bound of the longest path, in server-to-server hops."""

    @abstractmethod
    def bisection(self) -> Bound:
        """Return the paper's value or lower bound of the bisection width, in cables."""

    @abstractmethod
    def disjoint_paths(self) -> Bound:
        """Return how many node-disjoint paths the paper finds between two servers."""

    # -- larger and smaller --------------------------------------------------------------------

    @cached_property
    def whole(self) -> Topology:
        """The network that this one is a part of; itself, unless it is partial."""
        return type(self)(**{n: v for n, v in self.parameters.items() if n != "servers"})

    def resized(self, servers: int) -> Topology:
        """Return the network with so many servers, or raise PillarboxError.

        Those in both keep their numbers, addresses and ports: nothing is addressed or cabled anew
        (Guo 2008, section 5).

        >>> import topos
        >>> topos.parse("dcell,4,1,servers=16").resized(20)
        <dcell,4,1: 20 servers, 5 switches>
        """
        require(
            self.growth > 0,
            f"{self.spec} neither grows nor shrinks: its paper has no partial networks",
        )
        other = type(self)(**self.parameters | {"servers": servers})
        stay = range(min(servers, self.servers))
        require(
            all(self.uid(server) == other.uid(server) for server in stay),
            f"{self.spec} cannot become {other.spec} while it runs: there its servers are numbered "
            "by their addresses, and no more in the order in which they joined",
        )
        return other

    # -- what follows for every network --------------------------------------------------------

    def __init__(self, **parameters: int | None) -> None:
        self.parameters = {name: value for name, value in parameters.items() if value is not None}

    @property
    def kind(self) -> str:
        """Name of the network in a spec: the name of the file that defines it."""
        return type(self).__module__.rpartition(".")[2]

    @cached_property
    def spec(self) -> str:
        """The network as it is written on the command line: ``bcube,8,3,servers=2048``."""
        signature = inspect.signature(type(self)).parameters
        words = [
            str(value) if signature[name].default is inspect.Parameter.empty else f"{name}={value}"
            for name, value in self.parameters.items()
        ]
        return ",".join([self.kind, *words])

    def __repr__(self) -> str:
        return f"<{self.spec}: {self.servers} servers, {self.switches} switches>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(self.spec)

    def check_size(self) -> None:
        """Refuse a network that no address of the papers can number."""
        require(
            self.servers <= MOST_SERVERS,
            f"{self.spec} has {self.servers} servers, more than the {MOST_SERVERS} that 32-bit "
            "addresses can name; choose smaller parameters",
        )

    @property
    def nodes(self) -> int:
        """Number of servers and switches together."""
        return self.servers + self.switches

    def plug(self, node: int, port: int) -> Plug:
        """Return what the port of a server or switch is cabled to."""
        if node < self.servers:
            return self.server_plug(node, port)
        return self.switch_plug(node - self.servers, port)

    def ports_of(self, node: int) -> int:
        """Return how many ports the node has, used or not."""
        return self.ports if node < self.servers else self.switch_ports

    def neighbours(self, node: int) -> Iterator[tuple[int, Plug]]:
        """Yield each cabled port of a node with its far end."""
        for port in range(self.ports_of(node)):
            plug = self.plug(node, port)
            if plug.node != NOTHING:
                yield port, plug

    def peers(self, server: int, port: int) -> list[int]:
        """Return the servers one hop away through that port.

        A hop is a direct cable, or a way through switches that passes no other server.
        """
        far = self.server_plug(server, port).node
        if far == NOTHING:
            return []
        if far < self.servers:
            return [far]
        found, seen, pending = set(), {far}, [far]
        while pending:
            for _, plug in self.neighbours(pending.pop()):
                if plug.node < self.servers:
                    found.add(plug.node)
                elif plug.node not in seen:
                    seen.add(plug.node)
                    pending.append(plug.node)
        return sorted(found - {server})

    def links(self) -> Iterator[Cable]:
        """Yield every cable once, without holding more than one.

        A server's cable is named from the server (from the lower number where both ends are
        servers), a cable between switches from the lower switch number.
        """
        for node in range(self.nodes if self.switches_interconnect else self.servers):
            for port, plug in self.neighbours(node):
                if plug.node > node:
                    yield Cable(node, port, *plug)

    def cable_arrays(self) -> CableArrays:
        """Return every cable once, as arrays ``a, a_port, b, b_port, level``."""
        from topos.base.arrays import Side, cable_arrays

        return cable_arrays(
            self.spec,
            self.cables,
            Side(self.servers, self.ports, self.server_plug),
            Side(self.switches, self.switch_ports, self.switch_plug),
            switches_interconnect=self.switches_interconnect,
        )

    # -- names and text ------------------------------------------------------------------------

    def address(self, server: int) -> str:
        """Return the server's address as dotted digits, most significant first."""
        return ".".join(str(digit) for digit in self.digits(server))

    def server(self, address: str) -> int:
        """Return the server with that dotted address, or raise PillarboxError."""
        radices = self.radices()
        words = address.split(".")
        require(
            len(words) == len(radices) and all(map(_is_number, words)),
            f"{address!r} is not a server of {self.spec}: an address is {len(radices)} dotted "
            f"numbers, like {self.address(self.servers - 1)}",
        )
        digits = [int(word) for word in words]
        for digit, radix in zip(digits, radices, strict=True):
            require(
                digit < radix,
                f"{address!r} is not a server of {self.spec}: {digit} stands where the numbers "
                f"go from 0 to {radix - 1}",
            )
        server: int = self.server_at(digits)
        require(
            0 <= server < self.servers,
            f"{address!r} is not in {self.spec}, which holds only {self.servers} servers",
        )
        return server

    def node_name(self, node: int) -> str:
        """Return the node's name in Mininet: ``h7`` for a server, ``s3`` for a switch."""
        return f"h{node}" if node < self.servers else f"s{node - self.servers}"

    def switch(self, name: str) -> int:
        """Return the switch with that name (``s3``), or raise PillarboxError."""
        digits = name[1:]
        if name[:1] == "s" and _is_number(digits):
            switch = int(digits)
            if switch < self.switches:
                return switch
        raise PillarboxError(
            f"{name!r} is not a switch of {self.spec}: they are s0 to s{self.switches - 1}"
        )

    def node(self, text: str) -> int:
        """Return the node of that address or name (``0.3``, ``0.3.dcell``, ``h7``, ``s3``)."""
        if text[:1] == "s":
            return self.servers + self.switch(text)
        if text[:1] == "h" and _is_number(text[1:]):
            number = int(text[1:])
            require(number < self.servers, f"there is no host {text} in {self.spec}")
            return number
        return self.server(text.removesuffix(f".{self.kind}"))

    def name(self, node: int) -> str:
        """Return what `node` takes, and what people write: an address, or a switch's name."""
        return self.address(node) if node < self.servers else self.node_name(node)

    def interface(self, node: int, port: int) -> str:
        """Return the name of a port's network interface, at most Linux's 15 characters."""
        name = f"{self.node_name(node)}-eth{port}"
        require(
            len(name) <= 15,
            f"{self.spec} is too large to emulate: the interface name {name} is over 15 characters",
        )
        return name

    # -- for the eye ---------------------------------------------------------------------------

    def description(self) -> str:
        """Return one sentence that says what the network is made of.

        >>> import topos
        >>> topos.parse("bcube,4,1").description()
        'BCube₁ of 16 servers with 4-port switches: each server has 2 ports, one per level.'
        """
        return (
            f"{self.title} of {self.servers_text()} and {counted(self.switches, 'switch')}: "
            f"each server has {counted(self.ports, 'port')}."
        )

    def servers_text(self) -> str:
        """Return the number of servers in words, and for a partial network that of the whole."""
        of_whole = f" of {self.whole.servers}" if self.whole.servers != self.servers else ""
        return f"{self.servers}{of_whole} server{'s' if self.whole.servers != 1 else ''}"

    def layout(self) -> Layout:
        """Return where to draw each node; a network overrides it to look like its paper."""
        return grid_layout(self.servers, self.switches)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 port`` or ``2 switches``."""
    plural = f"{noun}{'es' if noun.endswith('ch') else 's'}"
    return f"{number} {noun if number == 1 else plural}"


def _is_number(word: str) -> bool:
    """Tell whether a word is a whole number; eighteen digits are far beyond any network."""
    return word.isascii() and word.isdecimal() and len(word) <= 18
