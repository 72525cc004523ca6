"""Requests of a trial to one machine's part: send and receive flows, watch the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pillarbox.experiments.apps.cluster.cards import CardWatch
from pillarbox.experiments.apps.cluster.distributed_watch import PartWatch
from pillarbox.experiments.apps.cluster.flow_sender import TrafficGeneratorHandle
from pillarbox.experiments.lab.emulation.lab import Lab
from pillarbox.experiments.lab.emulation.underlay import Underlay
from pillarbox.experiments.lab.linux.namespaces import fabric
from pillarbox.experiments.runs.trust.watch import Watch
from pillarbox.topos.base.errors import PillarboxError


class PartTrial:
    """Handles requests of a trial to one machine: send flows, measure load, report results.

    Parameters
    ----------
    part : Lab
        The part of the lab on this machine.
    underlay : Underlay
        The machine's network card, with the tunnels to other machines.
    """

    def __init__(self, part: Lab, underlay: Underlay) -> None:
        self._part, self._underlay = part, underlay
        self._sender: TrafficGeneratorHandle | None = None
        self._watch: PartWatch | None = None

    def requests(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Return the functions that handle a trial's requests to this machine, by name."""
        return {
            "prepare": lambda _: self._prepare(),
            "send": self._send,
            "send step": lambda asked: self._sending().step(asked["step"]),
            "send start": lambda asked: self._sending().start(asked["at_s"]),
            "send finish": lambda _: self._sending().finish(),
            "send look": lambda asked: self._sending().progress(asked["over"]),
            "send results": lambda _: self._sending().results(),
            "send close": lambda _: self._close_sender(),
            "watch": lambda asked: self._start_watch(come_and_go=asked["come_and_go"]),
            "watch begin": lambda asked: self._watching().begin(asked["at_s"]),
            "watch end": lambda _: self._watching().end(),
            "watch close": lambda _: self._close_watch(),
        }

    def close(self) -> None:
        """End this machine's traffic generator and its measurements, if they run."""
        self._close_sender()
        self._close_watch()

    def _prepare(self) -> dict[str, Any]:
        from pillarbox.experiments.lab.traffic.tools import pinned_sysctls
        from pillarbox.experiments.runs.trials.manifest import lab_facts

        pinned_sysctls(self._part)
        return lab_facts(self._part)

    def _send(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._close_sender()
        self._sender = TrafficGeneratorHandle(self._part, asked["flows"], asked["how"])
        return self._sender.listen()

    def _sending(self) -> TrafficGeneratorHandle:
        if self._sender is None:
            raise PillarboxError(
                "this machine has no traffic generator: the request `send` must come first"
            )
        return self._sender

    def _close_sender(self) -> None:
        if self._sender:
            self._sender.close()
            self._sender = None

    def _start_watch(self, *, come_and_go: bool) -> None:
        self._close_watch()
        watch = Watch(self._part, come_and_go=come_and_go)
        card, kernel = self._underlay.card.name, self._underlay.netlink
        self._watch = PartWatch(watch, lambda: CardWatch(kernel, card, fabric().netlink))

    def _watching(self) -> PartWatch:
        if self._watch is None:
            raise PillarboxError(
                "this machine has no load measurement: the request `watch` must come first"
            )
        return self._watch

    def _close_watch(self) -> None:
        if self._watch:
            self._watch.close()
            self._watch = None
