"""DFR, DCell's fault-tolerant routing (Guo 2008, section 4.3, Fig. 5): one server's decision.

Inside its DCell_b a server knows the state of every link (`View`) and uses shortest paths. Outside
the DCell_b it follows DCellRouting, of which only the next link that leaves the DCell_b matters:
all servers of a DCell_b agree on that link. If the link has failed or cannot be reached, the packet
is rerouted over another link of the same level. The far end of that link becomes the packet's
proxy, and the packet continues from there to its destination. If the proxy finds that its own next
link has failed as well, a whole rack may be down, and the packet jumps up: it takes a link one
level higher.

Servers keep no state per packet. A decision depends only on the header and on the port by which
the packet arrived (`Heading`), so packets with equal headings share one decision until a link
changes. Loops end: each reroute decrements the packet's retry count, each hop its TTL.

Of several proxies the nearest is chosen, and of equally near ones the proxy with the lowest uid
(SelectProxy; the paper does not specify the order). The order matters: with upper ports first,
packets in a sparse DCell circled through the same racks until their retry count was used up.

A server or cable missing from a partial DCell counts as failed (section 5). While the last DCell_l
of a partial DCell is small, few other servers have a cable to it, and the nearest proxy leads to
none of these: some packets to it then use up their retry count although nothing has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from pillarbox.hosts.base.algorithms import Routed
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.base.linkstate import next_steps
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.base.shortest import steps
from pillarbox.hosts.dcell import rules
from pillarbox.hosts.dcell.rules import InnerRoutes
from pillarbox.topos.dcell import DCell

LEVEL_B = 1  # level b of the DCell_b whose link states every server knows (section 6.1)
# Retry count of a new DCell packet. Each reroute decrements the count; at 0 the packet is dropped
# instead of rerouted (section 7.1, Fig. 5).
RETRY = 5
TTL = 64
REMEMBERED = 4096  # capacity of the cache of servers' knowledge of their DCell_b

RETRIES_SPENT = "retry count used up"
TTL_EXPIRED = "TTL expired"


class View(rules.Works, Protocol):
    """A server's knowledge of its DCell_b: link states and shortest paths."""

    @property
    def inside(self) -> InnerRoutes:
        """The shortest paths from this server."""
        ...


class Heading(NamedTuple):
    """The fields of a DCell packet that determine its next hop, in addition to link states."""

    destination: int
    proxy: int | None = None
    came_by: int | None = None  # ingress port; None for a packet of a local application


class ProxyHop(NamedTuple):
    """The next hop of a packet, and the proxy it is sent to from now on."""

    step: Step
    proxy: int | None
    rerouted: bool = False


class Lost(NamedTuple):
    """DFR's decision to drop a packet, with the reason why no next hop exists."""

    reason: str


Choice: TypeAlias = ProxyHop | Lost


def choose(dcell: DCell, b: int, server: int, heading: Heading, view: View) -> Choice:
    """Return a packet's next hop, or the reason for its loss (Fig. 5 without retries and TTL)."""
    net, here = rules.nested(dcell.sizes), dcell.uid(server)
    destination, came_by = dcell.uid(heading.destination), heading.came_by
    proxy = rules.NONE if heading.proxy is None else dcell.uid(heading.proxy)
    came_by = rules.NONE if came_by is None else came_by
    link = rules.next_link(net, b, here, destination, proxy)
    hop = rules.choose(net, b, view, view.inside, here, destination, proxy, came_by, link)
    if hop.port != rules.NONE:
        proxy_now = None if hop.proxy == rules.NONE else dcell.server_of_uid(hop.proxy)
        return ProxyHop(Step(hop.port, dcell.server_of_uid(hop.peer)), proxy_now, hop.rerouted)
    target = destination if proxy in (rules.NONE, here) else proxy
    inside = here // dcell.sizes[b] == target // dcell.sizes[b]
    return Lost(f"no path inside the DCell_{b}" if inside else "no proxy is left")


def first_link(dcell: DCell, b: int, server: int, destination: int) -> tuple[int, Step] | None:
    """Return DCellRouting's first link above level b on the path, None if there is none.

    The link (FirstLink) is returned as the server at its near end and the step over the link. In a
    partial DCell either end may be missing; its number is then `dcell.servers` or more.

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
    """Return True if servers `a` and `b` are in the same DCell_level."""
    size = dcell.sizes[level]
    return dcell.uid(a) // size == dcell.uid(b) // size


def members(dcell: DCell, level: int, server: int) -> list[int]:
    """Return the servers of a server's DCell_level, without those missing in a partial DCell."""
    size = dcell.sizes[level]
    first = dcell.uid(server) // size * size
    joined = (dcell.server_of_uid(uid) for uid in range(first, first + size))
    return [member for member in joined if member < dcell.servers]


def inside(dcell: DCell, b: int, next_steps: Mapping[int, Step]) -> InnerRoutes:
    """Convert a server's next hops inside its DCell_b to the arrays of the compiled rules.

    >>> inside(DCell(2, 1), 1, {1: Step(0, 1), 3: Step(0, 1)})  # server 0's table
    InnerRoutes(nearest=[1, 3], ports=[-1, 0, -1, 0, -1, -1], peers=[-1, 1, -1, 1, -1, -1])
    """
    size = dcell.sizes[b]
    nearest = [dcell.uid(server) % size for server in next_steps]
    ports, peers = [rules.NONE] * size, [rules.NONE] * size
    for place, step in zip(nearest, next_steps.values(), strict=True):
        ports[place], peers[place] = step.port, dcell.uid(step.peer) % size
    return InnerRoutes(nearest, ports, peers)


def upper_first(step: Step) -> tuple[int, int]:
    """Return the sort key of equally short hops: upper levels first, since they carry less load.

    Theorem 5 proves the lower load; the testbed's detour (section 7.3) starts with a level-1 link.
    """
    return -step.port, step.peer


# -- paths when all failures inside each DCell_b are known ----------------------------------------


class Converged:
    """A server's knowledge (`View`) if its link states include every failure in its DCell_b."""

    def __init__(self, dcell: DCell, b: int, server: int, failures: Failures = NONE) -> None:
        self.dcell, self.b, self.server, self.failures = dcell, b, server, failures
        self.members = frozenset(members(dcell, b, server))

    def __getitem__(self, link: tuple[int, int]) -> bool:
        """Return True if the link and both its ends exist and work; `link` is (uid, level)."""
        uid, level = link
        server = self.dcell.server_of_uid(uid)
        if server not in self.members:
            return False
        step = Step(level, self.dcell.server_plug(server, level).node)
        return self.failures.of_hop(self.dcell, server, step) is None

    @cached_property
    def inside(self) -> InnerRoutes:
        """The shortest paths to the reachable servers of the DCell_b."""
        return inside(self.dcell, self.b, next_steps(self.server, self._steps, self.dcell.uid))

    def _steps(self, server: int) -> Iterator[Step]:
        found = sorted(steps(self.dcell, server, self.failures), key=upper_first)
        return (step for step in found if step.peer in self.members)


@lru_cache(REMEMBERED)
def _converged(dcell: DCell, server: int, failures: Failures) -> Converged:
    """Return a server's knowledge of its DCell_b, cached since many flows pass each server."""
    return Converged(dcell, min(LEVEL_B, dcell.k), server, failures)


def walk(
    dcell: DCell,
    source: int,
    destination: int,
    view: Callable[[int], View],
    *,
    b: int = LEVEL_B,
    retry: int = RETRY,
) -> tuple[Path, str]:
    """Return DFR's path of a packet, and its drop reason ("" if the packet is delivered).

    Parameters
    ----------
    view : callable
        Maps a server to its view of the links.
    b : int
        Level b of the DCell_b whose links every server knows; limited to k.
    retry : int
        Retry count of a new packet.
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
    """Return DFR's path once all servers of every DCell_1 know the failures in their DCell_1.

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
    found, reason = walk(
        dcell, source, destination, lambda server: _converged(dcell, server, failures)
    )
    if reason:
        return Routed([], f"dropped at {dcell.address(found.destination)}: {reason}")
    return Routed([found])


def path(dcell: DCell, source: int, destination: int) -> Path:
    """Return DFR's path in a network without failures."""
    routed = around(dcell, source, destination, NONE)
    if not routed.paths:
        raise ValueError(f"DFR finds no path in {dcell.spec}: {routed.dropped}")
    return routed.paths[0]
