"""Installs a router's decisions in a data plane (hosts/base/actions.py).

The first packet of a flow, or to a destination, is handled by the router. The router's action says
which further packets are alike, which header is prepended to them and how the header is changed.
This decision is installed in a table, of the kernel or of the forwarder, and further packets are
forwarded by the table.

A decision is valid until the router's `generation` changes; then all decisions are withdrawn. If
only its `own_generation` changes, decisions on packets of the server's own applications are
withdrawn; for each flow in its `changed_flows`, the decisions on that flow; for each ground in its
`gone`, the decisions that followed from that ground.

State: the decisions that follow from each ground, at most MOST_KNOWN; at the limit all decisions
are withdrawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable

from pillarbox.hosts.base.actions import Action, Pushed, Relayed, Send, Unwrapped
from pillarbox.hosts.base.actions import Deliver as Delivered
from pillarbox.hosts.base.path import Step
from pillarbox.hosts.base.router import Router
from pillarbox.hosts.live.table import (
    DecisionTable,
    DecisionUse,
    DeliverDecision,
    PushDecision,
    RelayDecision,
    UnwrapDecision,
)
from pillarbox.hosts.wire.ipv4 import FlowKey
from pillarbox.hosts.wire.relay_keys import ByFlow, RelayKey

MacOf = Callable[[Step], bytes]

# Reading the counters of a cached action in use costs about 3 us; one not in use costs a quarter of
# that. With hundreds of decisions the counters are read less often, so that each of many servers
# spends less than a thousandth of a processor on them.
COUNTING_S, LOOKING_S = 5e-3, 1.25e-3
MOST_KNOWN = 8192  # maximum number of cached actions that are recorded by link or ground


class DecisionInstaller:
    """Installs a router's repeatable decisions in the data plane's table, and withdraws them.

    Parameters
    ----------
    router : Router
        Router that makes the decisions.
    table : Table
        Table in which the decisions are installed.
    mac : callable of Step to bytes
        Maps a hop to the MAC address of the next server's port.
    """

    def __init__(self, router: Router, table: DecisionTable, mac: MacOf) -> None:
        self.router, self.table, self._mac = router, table, mac
        # Times at which the counters of flows and of relayed packets are read next.
        self._count_flows_s = self._count_relays_s = 0.0
        self._generations = router.generation, router.own_generation
        self._keys_by_ground: defaultdict[Hashable, set[FlowKey | RelayKey]] = defaultdict(set)
        self._known = 0  # number of cached actions in `_keys_by_ground`

    def install(self, actions: list[Action]) -> None:
        """Install the decisions of a router's actions in the data plane's table."""
        self.withdraw_invalid()
        for action in actions:
            match action:
                case Delivered(_, key) if key is not None:
                    self.table.install_relay(key, DeliverDecision())
                case Send(port, peer, _, Pushed(flow, header, ground, others)):
                    first, *rest = (
                        PushDecision(by, self._next_hop_mac(by, to, flow, ground), added)
                        for by, to, added in ((port, peer, header), *others)
                    )
                    self.table.install_flow(flow, first, rest)
                case Send(port, peer, _, Relayed(key, change, ground)):
                    next_mac = self._next_hop_mac(port, peer, key, ground)
                    self.table.install_relay(key, RelayDecision(port, next_mac, change))
                case Send(port, peer, _, Unwrapped(key)):
                    self.table.install_relay(
                        key, UnwrapDecision(port, self._next_hop_mac(port, peer, key))
                    )

    def withdraw_invalid(self) -> None:
        """Remove cached actions that are no longer valid from the data plane's table."""
        self.router.keep_up()
        generations = self.router.generation, self.router.own_generation
        if generations != self._generations:
            only_own = self.router.generation == self._generations[0]
            self._generations = generations
            self.table.flush(relays=not only_own)
            if not only_own:
                self._forget_grounds()
        changed, gone = self.router.changed_flows, self.router.gone
        while changed:
            self.table.forget_flow(changed.pop())
        while gone:
            following = self._keys_by_ground.pop(gone.pop(), set())
            self._known -= len(following)
            for key in following:
                self.table.remove_decision(key)

    def _next_hop_mac(
        self, port: int, peer: int, key: FlowKey | RelayKey, ground: Hashable = None
    ) -> bytes:
        """Return a next hop's MAC address; record the link or ground of its cached action."""
        step = Step(port, peer)
        if self.router.answers_outlive_links:
            if self._known >= MOST_KNOWN:
                self.table.flush()
                self._forget_grounds()
            following = self._keys_by_ground[step if ground is None else ground]
            self._known += key not in following
            following.add(key)
        return self._mac(step)

    def _forget_grounds(self) -> None:
        self._keys_by_ground.clear()
        self._known = 0

    def report_used_flows(self, now: float) -> list[Action]:
        """Report to the router the traffic of flows that the data plane forwards."""
        found: list[tuple[FlowKey, DecisionUse]] = []
        if now >= self._count_flows_s:
            found += self.table.flows_used().items()
            self._count_flows_s = now + self._counting_pause_s(len(found))
        if self.router.by_flow and now >= self._count_relays_s:
            relays = self.table.relays_used()
            found += [(key.flow, used) for key, used in relays.items() if isinstance(key, ByFlow)]
            self._count_relays_s = now + self._counting_pause_s(len(relays))
        return [
            action for flow, used in found for action in self.router.used(flow, used.bytes, now)
        ]

    def _counting_pause_s(self, used: int) -> float:
        """Return the time until flow counters are read again, by the number of actions in use."""
        return COUNTING_S * used + LOOKING_S * (self.table.counted - used)
