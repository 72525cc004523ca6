"""DFR, DCell's fault-tolerant routing (Guo 2008, section 4.3, Fig. 5): what one server decides.

Inside its DCell_b a server knows the state of every link (`View`) and takes shortest paths. Beyond
it follows DCellRouting, of which only the next link that leaves the DCell_b matters: all servers
of a DCell_b agree on it. Where that link has failed, or cannot be reached, the packet is rerouted:
it takes another link of the same level, whose far end becomes the packet's proxy, and goes on to
its destination from there. If the proxy finds that its way on has failed as well, a whole rack may
be gone, and the packet jumps up: it takes a link one level higher.

Nothing is kept between packets. All that a decision depends on is in the header and in the port by
which the packet came (`Heading`), so equal headings can share one decision until a link changes.
Loops end: each reroute takes one from the packet's retry count, each hop one from its TTL.

Of several proxies the nearest is taken, and of those that are equally near the one with the lowest
uid (SelectProxy; the paper leaves it open). The order matters: with upper ports first, packets in a
sparse DCell went round the same racks until their retries ended.

A server or cable that a partial DCell does not have is one that has failed (section 5). While its
last DCell_l is small, few others have a cable to it, and the nearest proxy leads to none of them:
some packets to it then use up their retries though nothing has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import NamedTuple, Protocol, TypeAlias

from hosts.base.algorithms import Routed
from hosts.base.failures import NONE, Failures
from hosts.base.linkstate import next_steps
from hosts.base.path import Path, Step
from hosts.base.shortest import steps
from hosts.dcell import rules
from hosts.dcell.rules import Inside
from topos.dcell import DCell

LEVEL_B = 1  # of the DCell_b within which link state is known (section 6.1)
RETRY = 5  # of a new packet; each reroute takes one, and the last is not made (section 7.1, Fig. 5)
TTL = 64

RETRIES_SPENT = "retry count used up"
TTL_EXPIRED = "TTL expired"


class View(rules.Works, Protocol):
    """What a server knows of the links of its DCell_b: whether each works, and its ways there."""

    @property
    def inside(self) -> Inside:
        """The ways of this server."""
        ...


class Heading(NamedTuple):
    """What a packet says of its way: all that decides its next hop, beside the links."""

    destination: int
    proxy: int | None = None
    came_by: int | None = None  # the port; None where it is the server's own


class Onward(NamedTuple):
    """The next hop, and the proxy that the packet goes to from now on."""

    step: Step
    proxy: int | None
    rerouted: bool = False


class Lost(NamedTuple):
    """There is no next hop."""

    reason: str


Choice: TypeAlias = Onward | Lost


def choose(dcell: DCell, b: int, server: int, heading: Heading, view: View) -> Choice:
    """Return where a packet for another server goes: Fig. 5 but for the retry count and the TTL."""
    net, here = rules.nested(dcell.sizes), dcell.uid(server)
    destination, came_by = dcell.uid(heading.destination), heading.came_by
    proxy = rules.NONE if heading.proxy is None else dcell.uid(heading.proxy)
    came_by = rules.NONE if came_by is None else came_by
    link = rules.next_link(net, b, here, destination, proxy)
    hop = rules.choose(net, b, view, view.inside, here, destination, proxy, came_by, link)
    if hop.port != rules.NONE:
        proxy_now = None if hop.proxy == rules.NONE else dcell.server_of_uid(hop.proxy)
        return Onward(Step(hop.port, dcell.server_of_uid(hop.peer)), proxy_now, hop.rerouted)
    target = destination if proxy in (rules.NONE, here) else proxy
    inside = here // dcell.sizes[b] == target // dcell.sizes[b]
    return Lost(f"no way inside the DCell_{b}" if inside else "no proxy is left")


def first_link(dcell: DCell, b: int, server: int, destination: int) -> tuple[int, Step] | None:
    """Return DCellRouting's first link of a level above b, None where it needs none (FirstLink).

    The link is the server at its near end, and the step over it. Either end may be missing in a
    partial DCell; then its number is beyond those of all servers.

    >>> dcell = DCell(4, 1)
    >>> first_link(dcell, 0, dcell.server("0.0"), dcell.server("4.3"))
    (3, Step(port=1, peer=16))
    """
    ends = dcell.uid(server), dcell.uid(destination)
    near, far, level = rules.first_link(rules.nested(dcell.sizes), b, *ends)
    if level == rules.NONE:
        return None
    return dcell.server_of_uid(near), Step(level, dcell.server_of_uid(far))


def together(dcell: DCell, level: int, a: int, b: int) -> bool:
    """Tell whether two servers are in one DCell_level."""
    size = dcell.sizes[level]
    return dcell.uid(a) // size == dcell.uid(b) // size


def members(dcell: DCell, level: int, server: int) -> list[int]:
    """Return the servers of a server's DCell_level, as far as they have joined."""
    size = dcell.sizes[level]
    first = dcell.uid(server) // size * size
    joined = (dcell.server_of_uid(uid) for uid in range(first, first + size))
    return [member for member in joined if member < dcell.servers]


def inside(dcell: DCell, b: int, next_steps: Mapping[int, Step]) -> Inside:
    """Return a server's ways inside its DCell_b, as the rules have them, from its next hops there.

    >>> inside(DCell(2, 1), 1, {1: Step(0, 1), 3: Step(0, 1)})  # of server 0
    Inside(nearest=[1, 3], ports=[-1, 0, -1, 0, -1, -1], peers=[-1, 1, -1, 1, -1, -1])
    """
    size = dcell.sizes[b]
    nearest = [dcell.uid(server) % size for server in next_steps]
    ports, peers = [rules.NONE] * size, [rules.NONE] * size
    for place, step in zip(nearest, next_steps.values(), strict=True):
        ports[place], peers[place] = step.port, dcell.uid(step.peer) % size
    return Inside(nearest, ports, peers)


def upper_first(step: Step) -> tuple[int, int]:
    """Return what to sort hops by, where they are equally short: upper levels carry less load.

    Theorem 5 says so, and the testbed's detour (section 7.3) begins with a level-1 link.
    """
    return -step.port, step.peer


# -- with every failure inside the DCell_b known --------------------------------------------------


class Converged:
    """The view of a server that has learned of all failures there are in its DCell_b."""

    def __init__(self, dcell: DCell, b: int, server: int, failures: Failures = NONE) -> None:
        self.dcell, self.b, self.server, self.failures = dcell, b, server, failures
        self.members = frozenset(members(dcell, b, server))

    def __getitem__(self, link: tuple[int, int]) -> bool:
        """Tell whether neither the link nor one of its ends has failed, or is missing."""
        uid, level = link
        server = self.dcell.server_of_uid(uid)
        if server not in self.members:
            return False
        step = Step(level, self.dcell.server_plug(server, level).node)
        return self.failures.of_hop(self.dcell, server, step) is None

    @cached_property
    def inside(self) -> Inside:
        """The ways to the other servers of the DCell_b in reach."""
        return inside(self.dcell, self.b, next_steps(self.server, self._steps, self.dcell.uid))

    def _steps(self, server: int) -> Iterator[Step]:
        found = sorted(steps(self.dcell, server, self.failures), key=upper_first)
        return (step for step in found if step.peer in self.members)


def walk(
    dcell: DCell,
    source: int,
    destination: int,
    view: Callable[[int], View],
    *,
    b: int = LEVEL_B,
    retry: int = RETRY,
) -> tuple[Path, str]:
    """Return the way of a packet, and why it ended if that was not at the destination.

    Parameters
    ----------
    view : callable
        Returns what a server knows.
    b : int
        The level within which servers know all links; at most k counts.
    retry : int
        The retry count of a new packet.
    """
    b = min(b, dcell.k)
    at, passed = source, list[Step]()
    heading = Heading(destination)
    while at != destination:
        if len(passed) == TTL:
            return Path(source, tuple(passed)), TTL_EXPIRED
        choice = choose(dcell, b, at, heading, view(at))
        if isinstance(choice, Lost):
            return Path(source, tuple(passed)), choice.reason
        retry -= choice.rerouted
        if retry < 1:
            return Path(source, tuple(passed)), RETRIES_SPENT
        passed.append(choice.step)
        at = choice.step.peer
        heading = Heading(destination, choice.proxy, choice.step.port)
    return Path(source, tuple(passed)), ""


def around(
    dcell: DCell, source: int, destination: int, failures: Failures, _several: bool = False
) -> Routed:
    """Return the path that packets take once every DCell_1 knows of its failures.

    The paper's example (section 7.3): the cable between 0.3 and 4.0 is unplugged.

    >>> dcell = DCell(4, 1)
    >>> ends = dcell.server("0.0"), dcell.server("4.3")
    >>> cable = frozenset([dcell.server("0.3"), dcell.server("4.0")])
    >>> for failures in (NONE, Failures(links=frozenset([cable]))):
    ...     (found,) = around(dcell, *ends, failures).paths
    ...     print(*(dcell.address(server) for server in found.servers))
    0.0 0.3 4.0 4.3
    0.0 1.0 1.3 4.1 4.3
    """
    view = cache(lambda server: Converged(dcell, min(LEVEL_B, dcell.k), server, failures))
    found, reason = walk(dcell, source, destination, view)
    if reason:
        return Routed([], f"dropped at {dcell.address(found.destination)}: {reason}")
    return Routed([found])


def path(dcell: DCell, source: int, destination: int) -> Path:
    """Return DFR's path where nothing has failed."""
    routed = around(dcell, source, destination, NONE)
    if not routed.paths:
        raise ValueError(f"DFR finds no path in {dcell.spec}: {routed.dropped}")
    return routed.paths[0]
