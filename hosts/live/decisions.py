"""What a data plane may repeat: the router's answers, as it gives them (hosts/base/actions.py).

The first packet of a flow, or to a destination, goes through the router like every packet. What the
router says of its answer (which packets are alike, which header is put in front of them, how it is
changed) is installed in a table, the kernel's or the forwarder's own, and packets like it are
forwarded from there.

Whatever it says holds until its `generation` changes; then all of it is taken back (where only its
`own_generation` changes: what it said of packets of its own applications; where a flow is among its
`changed_flows`: what it said of that flow).
"""

from __future__ import annotations

from collections.abc import Callable

from hosts.base.actions import Action, Pushed, Relayed, Send, Unwrapped
from hosts.base.actions import Deliver as Delivered
from hosts.base.path import Step
from hosts.base.router import Router
from hosts.live.table import Deliver, Push, Relay, Table, Unwrap, Used
from hosts.wire.ipv4 import FlowKey
from hosts.wire.relayed import ByFlow

MacOf = Callable[[Step], bytes]

# To count what one decision was used for costs some 3 microseconds. Where there are hundreds, that
# is done less often: so it takes each of many servers less than a thousandth of a processor.
COUNTING_S = 5e-3


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

    def learn(self, actions: list[Action]) -> None:
        """Install what the router says of its answers to a packet."""
        self.keep_up()
        for action in actions:
            match action:
                case Delivered(_, key) if key is not None:
                    self.table.install_relay(key, Deliver())
                case Send(port, peer, _, Pushed(flow, header)):
                    self.table.install_flow(flow, Push(port, self._mac(Step(port, peer)), header))
                case Send(port, peer, _, Relayed(key, change)):
                    self.table.install_relay(key, Relay(port, self._mac(Step(port, peer)), change))
                case Send(port, peer, _, Unwrapped(key)):
                    self.table.install_relay(key, Unwrap(port, self._mac(Step(port, peer))))

    def keep_up(self) -> None:
        """Take back what does not hold any more."""
        generations = self.router.generation, self.router.own_generation
        if generations != self._generations:
            only_own = self.router.generation == self._generations[0]
            self._generations = generations
            self.table.flush(relays=not only_own)
        changed = self.router.changed_flows
        while changed:
            self.table.forget(changed.pop())

    def tell_used(self, now: float) -> list[Action]:
        """Tell the router which flows live although it does not see their packets."""
        found: list[tuple[FlowKey, Used]] = []
        if now >= self._count_flows_s:
            found += self.table.flows_used().items()
            self._count_flows_s = now + COUNTING_S * len(found)
        if self.router.by_flow and now >= self._count_relays_s:
            relays = self.table.relays_used()
            found += [(key.flow, used) for key, used in relays.items() if isinstance(key, ByFlow)]
            self._count_relays_s = now + COUNTING_S * len(relays)
        return [
            action for flow, used in found for action in self.router.used(flow, used.bytes, now)
        ]
