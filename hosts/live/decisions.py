"""What a data plane may repeat: the router's answers, as it gives them (hosts/base/actions.py).

The first packet of a flow, or to a destination, goes through the router like every packet. What the
router says of its answer (which packets are alike, which header is put in front of them, how it is
changed) is installed in a table, the kernel's or the forwarder's own, and packets like it are
forwarded from there.

Whatever it says holds until its `generation` changes; then all of it is taken back (where only its
`own_generation` changes: what it said of packets of its own applications; where a flow is among its
`changed_flows`: what it said of that flow; where a ground is among those that are `gone`: what
followed from it).

State: which decisions follow from which ground, MOST_KNOWN at most; then all begins anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable

from hosts.base.actions import Action, Pushed, Relayed, Send, Unwrapped
from hosts.base.actions import Deliver as Delivered
from hosts.base.path import Step
from hosts.base.router import Router
from hosts.live.table import Deliver, Push, Relay, Table, Unwrap, Used
from hosts.wire.ipv4 import FlowKey
from hosts.wire.relayed import ByFlow, RelayKey

MacOf = Callable[[Step], bytes]

# To count what one decision was used for costs some 3 microseconds, and a quarter of that where it
# was not used. Where there are hundreds, that is done less often: so it takes each of many servers
# less than a thousandth of a processor.
COUNTING_S, LOOKING_S = 5e-3, 1.25e-3
MOST_KNOWN = 8192


class Decisions:
    """Installs what one router decides.

    Parameters
    ----------
    router : Router
        Whose answers these are.
    table : Table
        Where they are installed.
    mac : callable of Step to bytes
        The MAC address at the other end of a hop.
    """

    def __init__(self, router: Router, table: Table, mac: MacOf) -> None:
        self.router, self.table, self._mac = router, table, mac
        self._count_flows_s = self._count_relays_s = 0.0  # when it is time for that
        self._generations = router.generation, router.own_generation
        self._following: defaultdict[Hashable, set[FlowKey | RelayKey]] = defaultdict(set)
        self._known = 0  # of those

    def learn(self, actions: list[Action]) -> None:
        """Install what the router says of its answers to a packet."""
        self.keep_up()
        for action in actions:
            match action:
                case Delivered(_, key) if key is not None:
                    self.table.install_relay(key, Deliver())
                case Send(port, peer, _, Pushed(flow, header, ground)):
                    next_mac = self._towards(port, peer, flow, ground)
                    self.table.install_flow(flow, Push(port, next_mac, header))
                case Send(port, peer, _, Relayed(key, change, ground)):
                    next_mac = self._towards(port, peer, key, ground)
                    self.table.install_relay(key, Relay(port, next_mac, change))
                case Send(port, peer, _, Unwrapped(key)):
                    self.table.install_relay(key, Unwrap(port, self._towards(port, peer, key)))

    def keep_up(self) -> None:
        """Take back what does not hold any more."""
        self.router.keep_up()
        generations = self.router.generation, self.router.own_generation
        if generations != self._generations:
            only_own = self.router.generation == self._generations[0]
            self._generations = generations
            self.table.flush(relays=not only_own)
            if not only_own:
                self._forget()
        changed, gone = self.router.changed_flows, self.router.gone
        while changed:
            self.table.forget(changed.pop())
        while gone:
            following = self._following.pop(gone.pop(), set())
            self._known -= len(following)
            for key in following:
                self.table.take_back(key)

    def _towards(
        self, port: int, peer: int, key: FlowKey | RelayKey, ground: Hashable = None
    ) -> bytes:
        """Note what a decision follows from; return the MAC address where it leads."""
        step = Step(port, peer)
        if self.router.answers_outlive_links:
            if self._known >= MOST_KNOWN:
                self.table.flush()
                self._forget()
            following = self._following[step if ground is None else ground]
            self._known += key not in following
            following.add(key)
        return self._mac(step)

    def _forget(self) -> None:
        self._following.clear()
        self._known = 0

    def tell_used(self, now: float) -> list[Action]:
        """Tell the router which flows live although it does not see their packets."""
        found: list[tuple[FlowKey, Used]] = []
        if now >= self._count_flows_s:
            found += self.table.flows_used().items()
            self._count_flows_s = now + self._pause_s(len(found))
        if self.router.by_flow and now >= self._count_relays_s:
            relays = self.table.relays_used()
            found += [(key.flow, used) for key, used in relays.items() if isinstance(key, ByFlow)]
            self._count_relays_s = now + self._pause_s(len(relays))
        return [
            action for flow, used in found for action in self.router.used(flow, used.bytes, now)
        ]

    def _pause_s(self, used: int) -> float:
        """Return how long to wait after decisions were counted, so many of which were used."""
        return COUNTING_S * used + LOOKING_S * (self.table.counted - used)
