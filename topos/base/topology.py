"""The Topology contract: wiring, addresses and published bounds of a network, computed on demand.

Servers are the dense integers ``0 .. servers-1`` and switches ``0 .. switches-1``. A *node* is a
server or a switch: servers come first, so switch ``s`` is node ``servers + s``. No wiring is
stored, except for graphs from files (`pillarbox.topos.base.graph`). A subclass defines the far end
of a port's cable (`server_plug`, `switch_plug`), the digits of a server's address (`digits`,
`server_at`), and its paper's bounds (`diameter_bound`, `bisection`, `disjoint_paths`). This class
derives the rest for every network, from peers to arrays of all cables.

Wiring and address functions with a `Number` parameter accept one server (``int``) or a numpy
array. They do not check their arguments; the functions that parse text (`server`, `switch`) do.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pillarbox.topos.base.addressing import End, UidAddresses
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, require
from pillarbox.topos.base.layout import Layout, grid_layout
from pillarbox.topos.base.levels import LevelFactors
from pillarbox.topos.base.polymorphic import NOTHING, Number

if TYPE_CHECKING:
    from pillarbox.topos.base.arrays import CableArrays

# Number of servers, and of switches, at each end of the numbering whose cables show the levels.
SAMPLE = 512
# Maximum number of servers: DCell's header fields and IPv4 addresses are 32 bits wide (Guo 2008,
# Fig. 10).
MOST_SERVERS = 2**32


class Plug(NamedTuple):
    """The far end of the cable at a port: node, port, and the cable's level.

    `node` is NOTHING if the port has no cable; `port` and `level` are then undefined.
    """

    # Fields have type Any: ints for one node, numpy arrays in a query about many nodes.
    node: Any
    port: Any
    level: Any


class Cable(NamedTuple):
    """One cable: ``a`` is its server, or, between two switches, the lower-numbered switch."""

    a: int
    a_port: int
    b: int
    b_port: int
    level: int


class Bound(NamedTuple):
    """A property of a network according to its paper: value or bound, formula and source.

    `value` is None if the paper proves no bound, as for some partial networks.
    """

    value: float | None
    formula: str
    source: str


class Topology(UidAddresses, ABC):
    """Base class of all networks of servers and switches, with their addresses and cables.

    The parameters of a subclass's ``__init__`` are those of its spec: whole numbers, the optional
    ones None by default. A network of any number of dimensions takes ``*dimensions``. The subclass
    checks the parameters, passes them to this class, sets the counts below, and calls `check_size`
    last.
    """

    # Specs of small example networks, for tests, help texts and documentation.
    examples: ClassVar[tuple[str, ...]] = ()
    title: ClassVar[str] = ""
    paper: str = ""
    # True if the network has cables between switches.
    switches_interconnect: bool = False
    # Name of the smallest sub-structure of neighbouring servers, such as ``DCell_0``, whose servers
    # share all digits but the last; "" if the paper has none.
    cell: ClassVar[str] = ""
    # Number of servers by which a partial network grows; 0 if its paper has no partial networks.
    growth: int = 0

    # Values of the spec's parameters by name; optional parameters only if given.
    parameters: dict[str, int]
    # Numbers of a spec that takes any number of them (``torus,4,4,2``), empty in other networks.
    dimensions: tuple[int, ...]
    # Factors of the rate, delay and price of cables by level, from options of the spec.
    factors: LevelFactors = LevelFactors()
    servers: int
    switches: int
    cables: int
    ports: int  # number of ports per server
    switch_ports: int  # number of ports of the largest switch

    # -- methods that every network defines ----------------------------------------------------

    @abstractmethod
    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the far end of the cable at a server's port."""

    @abstractmethod
    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the far end of the cable at a switch's port."""

    @abstractmethod
    def digits(self, server: Number) -> tuple[Number, ...]:
        """Return the paper's address of a server, most significant digit first."""

    @abstractmethod
    def server_at(self, digits: Sequence[Number]) -> Number:
        """Return the server whose address has these digits, without a check (`server` has one)."""

    @abstractmethod
    def radices(self) -> tuple[int, ...]:
        """Return the number of values of each digit of an address, most significant digit first."""

    @abstractmethod
    def switch_label(self, switch: int) -> str:
        """Return the switch's label in the notation of the paper."""

    @abstractmethod
    def diameter_bound(self) -> Bound:
        """Return the paper's upper bound of the path length, in server-to-server hops."""

    @abstractmethod
    def bisection(self) -> Bound:
        """Return the paper's value or lower bound of the bisection width, in cables."""

    @abstractmethod
    def disjoint_paths(self) -> Bound:
        """Return the number of node-disjoint paths between two servers according to the paper."""

    # -- partial networks ----------------------------------------------------------------------

    @cached_property
    def whole(self) -> Topology:
        """The full network of which a partial network is a part; a full network returns itself."""
        return self._with_servers(None)

    def resized(self, servers: int) -> Topology:
        """Return the partial network of `servers` servers, or raise PillarboxError.

        Servers of both networks keep their numbers, addresses and ports: growth requires no
        re-addressing and no re-cabling (Guo 2008, section 5).

        >>> from pillarbox import topos
        >>> topos.parse("dcell,4,1,servers=16").resized(20)
        <dcell,4,1: 20 servers, 5 switches>
        """
        require(
            self.growth > 0,
            f"{self.spec} neither grows nor shrinks: its paper has no partial networks",
        )
        other = self._with_servers(servers)
        stay = range(min(servers, self.servers))
        require(
            all(self.uid(server) == other.uid(server) for server in stay),
            f"{self.spec} cannot become {other.spec} while it runs: one network numbers its "
            "servers by address, the other in joining order",
        )
        return other

    def _with_servers(self, servers: int | None) -> Topology:
        """Return the network of the same parameters, with `servers` servers (None: all)."""
        others = {name: value for name, value in self.parameters.items() if name != "servers"}
        if servers is not None:
            others["servers"] = servers
        return type(self)(*self.dimensions, **others).with_level_factors(self.factors)

    # -- levels of cables ----------------------------------------------------------------------

    @cached_property
    def levels(self) -> int:
        """Number of levels of cables; of a partial network, that of the full one.

        >>> from pillarbox import topos
        >>> topos.parse("bcube,2,2").levels, topos.parse("dcell,4,1,servers=4").levels
        (3, 2)
        """
        network = self.whole
        highest = 0
        for first_node, count in ((0, network.servers), (network.servers, network.switches)):
            some = {*range(min(count, SAMPLE)), *range(max(count - SAMPLE, 0), count)}
            plugs = (plug for node in some for _, plug in network.neighbours(first_node + node))
            highest = max(highest, *(int(plug.level) for plug in plugs), 0)
        return highest + 1

    def with_level_factors(self, factors: LevelFactors) -> Topology:
        """Return this network with factors of its own for each level of cables."""
        if factors == self.factors:
            return self
        found = copy.copy(self)
        for name in ("spec", "whole"):  # properties that depend on the factors
            found.__dict__.pop(name, None)
        found.factors = factors
        return found

    def rate_of_level(self, level: int) -> int:
        """Return the rate of cables of a level, relative to the rate of the network.

        >>> from pillarbox import topos
        >>> topos.parse("bcube,4,1,rates=9:1").rate_of_level(0)
        9
        """
        return self.factors.rates[level] if self.factors.rates else 1

    def rate_of_port(self, node: int, port: int) -> int:
        """Return the relative rate of the cable at a port of a server or switch; 1 without one."""
        if not self.factors.rates:
            return 1
        far, _, level = self.plug(node, port)
        return 1 if far == NOTHING else self.rate_of_level(level)

    def delay_of_level(self, level: int) -> int:
        """Return the delay of cables of a level, relative to the delay of the network."""
        return self.factors.delays[level] if self.factors.delays else 1

    def price_of_level(self, level: int) -> int:
        """Return the price of cables and ports of a level, relative to the listed price."""
        return self.factors.prices[level] if self.factors.prices else 1

    # -- derived properties of every network ---------------------------------------------------

    def __init__(self, *dimensions: int, **parameters: int | None) -> None:
        self.dimensions = dimensions
        self.parameters = {name: value for name, value in parameters.items() if value is not None}

    @property
    def kind(self) -> str:
        """Kind of network, as in its spec (bcube, ...): the name of the file that defines it."""
        return type(self).__module__.rpartition(".")[2]

    @cached_property
    def spec(self) -> str:
        """The network's spec, as written on the command line: ``bcube,8,3,servers=2048``."""
        signature = inspect.signature(type(self)).parameters
        words = [
            str(value) if signature[name].default is inspect.Parameter.empty else f"{name}={value}"
            for name, value in self.parameters.items()
        ]
        return ",".join([self.kind, *map(str, self.dimensions), *words, *self.factors.words])

    def __repr__(self) -> str:
        return f"<{self.spec}: {self.servers} servers, {self.switches} switches>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(self.spec)

    def check_size(self) -> None:
        """Raise PillarboxError if the network has more servers than 32-bit addresses can name."""
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
        """Return the far end of the cable at a port of a server or switch."""
        if node < self.servers:
            return self.server_plug(node, port)
        return self.switch_plug(node - self.servers, port)

    def ports_of(self, node: int) -> int:
        """Return the number of ports of a server or switch, including ports without cables."""
        return self.ports if node < self.servers else self.switch_ports

    def neighbours(self, node: int) -> Iterator[tuple[int, Plug]]:
        """Yield (port, far end) for each port of the node that has a cable."""
        for port in range(self.ports_of(node)):
            plug = self.plug(node, port)
            if plug.node != NOTHING:
                yield port, plug

    def peers(self, server: int, port: int) -> list[int]:
        """Return the servers one hop away through a port of the server.

        A hop is a direct cable, or a path through switches only.
        """
        far = self.server_plug(server, port).node
        if far == NOTHING:
            return []
        if far < self.servers:
            return [far]
        peers, visited, pending = set(), {far}, [far]
        while pending:
            for _, plug in self.neighbours(pending.pop()):
                if plug.node < self.servers:
                    peers.add(plug.node)
                elif plug.node not in visited:
                    visited.add(plug.node)
                    pending.append(plug.node)
        return sorted(peers - {server})

    def links(self) -> Iterator[Cable]:
        """Yield every cable of the network once, without storing all cables.

        End `a` is the server if the other end is a switch, and otherwise the node of lower number.
        """
        for node in range(self.nodes if self.switches_interconnect else self.servers):
            for port, plug in self.neighbours(node):
                if plug.node > node:
                    yield Cable(node, port, *plug)

    def cable_arrays(self) -> CableArrays:
        """Return all cables of the network as arrays ``a, a_port, b, b_port, level``."""
        from pillarbox.topos.base.arrays import NodeSide, cable_arrays

        return cable_arrays(
            self.spec,
            self.cables,
            NodeSide(self.servers, self.ports, self.server_plug),
            NodeSide(self.switches, self.switch_ports, self.switch_plug),
            switches_interconnect=self.switches_interconnect,
        )

    # -- names and text ------------------------------------------------------------------------

    def address(self, server: int) -> str:
        """Return the server's address as dotted digits, most significant digit first."""
        return ".".join(str(digit) for digit in self.digits(server))

    def server(self, address: str) -> int:
        """Return the server with this dotted address, or raise PillarboxError."""
        radices = self.radices()
        words = address.split(".")
        require(
            len(words) == len(radices) and all(map(_is_number, words)),
            f"{address!r} is not a server of {self.spec}: an address is {len(radices)} dotted "
            f"numbers, such as {self.address(self.servers - 1)}",
        )
        digits = [int(word) for word in words]
        for digit, radix in zip(digits, radices, strict=True):
            require(
                digit < radix,
                f"{address!r} is not a server of {self.spec}: digit {digit} is out of range: "
                f"the numbers go from 0 to {radix - 1}",
            )
        server: int = self.server_at(digits)
        require(
            0 <= server < self.servers,
            f"server {address!r} is not in {self.spec}, which has only {self.servers} servers",
            UnknownNameError,
        )
        return server

    def node_name(self, node: int) -> str:
        """Return the node's name in Mininet: ``h7`` for a server, ``s3`` for a switch."""
        return f"h{node}" if node < self.servers else f"s{node - self.servers}"

    def switch(self, name: str) -> int:
        """Return the switch with this name (``s3``), or raise PillarboxError."""
        digits = name[1:]
        if name[:1] == "s" and _is_number(digits):
            switch = int(digits)
            if switch < self.switches:
                return switch
        known = f"its switches are s0 to s{self.switches - 1}" if self.switches else "it has none"
        raise PillarboxError(f"{name!r} is not a switch of {self.spec}: {known}")

    def node(self, text: str) -> int:
        """Return the node with this address or name (``0.3``, ``0.3.dcell``, ``h7``, ``s3``)."""
        if text[:1] == "s":
            return self.servers + self.switch(text)
        if text[:1] == "h" and _is_number(text[1:]):
            number = int(text[1:])
            require(
                number < self.servers, f"there is no host {text} in {self.spec}", UnknownNameError
            )
            return number
        return self.server(text.removesuffix(f".{self.kind}"))

    def end(self, text: str) -> End:
        """Return the end that a server's name or a port's (``0.0%1``, ``h0-1``) describes.

        >>> from pillarbox import topos
        >>> topos.parse("bcube,4,1").end("0.3%1"), topos.parse("bcube,4,1").end("0.3")
        (End(server=3, port=1), End(server=3, port=None))
        """
        name, mark, port = text.partition("-" if text[:1] == "h" else "%")
        server = self.node(name)
        require(server < self.servers, f"{name} is a switch: name a server")
        if not mark:
            return End(server)
        require(
            _is_number(port) and int(port) < self.ports,
            f"{text} is not a port's address: ports of {self.spec} are numbered from 0 to "
            f"{self.ports - 1}, such as {self.address(server)}%{self.ports - 1}",
        )
        self.check_ports_addressable()
        return End(server, int(port))

    def end_name(self, end: End) -> str:
        """Return the name of a packet's end, the text form that `end` parses."""
        port = "" if end.port is None else f"%{end.port}"
        return f"{self.address(end.server)}{port}"

    def name(self, node: int) -> str:
        """Return a server's address or a switch's name, the text form that `node` parses."""
        return self.address(node) if node < self.servers else self.node_name(node)

    def interface(self, node: int, port: int) -> str:
        """Return a port's Linux interface name; raise PillarboxError above 15 characters."""
        name = f"{self.node_name(node)}-eth{port}"
        require(
            len(name) <= 15,
            f"{self.spec} is too large to emulate: the interface name {name} is over 15 characters",
        )
        return name

    # -- drawing -------------------------------------------------------------------------------

    def description(self) -> str:
        """Return a sentence that describes the network: servers, switches and ports.

        >>> from pillarbox import topos
        >>> topos.parse("bcube,4,1").description()
        'BCube₁ of 16 servers with 4-port switches: each server has 2 ports, one per level.'
        """
        return (
            f"{self.title} of {self.servers_text()} and {count_text(self.switches, 'switch')}: "
            f"each server has {count_text(self.ports, 'port')}."
        )

    def servers_text(self) -> str:
        """Return the number of servers as text; for a partial network also the full network's."""
        of_whole = f" of {self.whole.servers}" if self.whole.servers != self.servers else ""
        return f"{self.servers}{of_whole} server{'s' if self.whole.servers != 1 else ''}"

    def layout(self) -> Layout:
        """Return the drawing of the network; subclasses follow a figure of their paper."""
        return grid_layout(self.servers, self.switches)


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 port`` or ``2 switches``."""
    plural = f"{noun}{'es' if noun.endswith('ch') else 's'}"
    return f"{number} {noun if number == 1 else plural}"


def _is_number(word: str) -> bool:
    """Return True if the word is a whole number of at most 18 digits (larger than any network)."""
    return word.isascii() and word.isdecimal() and len(word) <= 18
