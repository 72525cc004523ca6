"""Samples of a running lab: traffic counters of its cables (`meter`), its failures, its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

MOST_LOG_BYTES = 1 << 16  # maximum bytes of the lab's log in one sample


class LabSampler:
    """Samples a lab's traffic counters, faults and log for the lab's page; thread-safe."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def sample(self, log_from: int = 0) -> dict[str, Any]:
        """Return the lab's counters, faults and new log lines at this moment.

        Parameters
        ----------
        log_from : int
            Start offset in the lab's log: ``log_to`` of the previous sample.

        Returns
        -------
        dict
            ``at_s`` by CLOCK_MONOTONIC; ``sent_bytes`` from ends a and b of each cable, in the
            order of `Topology.links`; in the same order, ``waiting_bytes``, currently in the port's
            queue, and packets ``dropped`` by that queue so far, both 0 without a rate limit;
            ``received_bytes`` of IP packets by each server's programs, acknowledgements included;
            ``faults`` and ``dead``; ``shapes``: both ends of cables with a changed shape, and the
            shape as text and in Mbit/s; the ``log`` since `log_from`.
        """
        lab, counts = self._lab, self._lab.fabric.counters()
        topology = counts.topology
        ports = [counts.directions.get(one, (0, 0, 0)) for one in range(2 * topology.cables)]
        log, log_to = self._log(log_from)
        return {
            "at_s": counts.at_s,
            "network": topology.spec,
            "rate_mbit": lab.settings.rate_mbit,
            "sent_bytes": [sent for sent, _, _ in ports],
            "waiting_bytes": [waiting for _, waiting, _ in ports],
            "dropped": [dropped for _, _, dropped in ports],
            "received_bytes": [counts.received.get(one, 0) for one in range(topology.servers)],
            "faults": [[fault.kind, *lab.names_in(fault)] for fault in lab.faults.active],
            "shapes": [
                [*sorted(lab.name(lab.node(end)) for end in ends), str(shape), shape.rate_mbit]
                for ends, shape in list(lab.net.shapes.changed.items())
            ],
            "dead": [lab.name(server) for server in sorted(lab.dead)],
            "log": log,
            "log_to": log_to,
        }

    def _log(self, start: int) -> tuple[list[str], int]:
        """Return complete lines of the lab's log from an offset, and the offset after them."""
        with (self._lab.folder / "events.jsonl").open("rb") as file:
            file.seek(start)
            text = file.read(MOST_LOG_BYTES)
        whole = text[: text.rfind(b"\n") + 1]
        return whole.decode().splitlines(), start + len(whole)
