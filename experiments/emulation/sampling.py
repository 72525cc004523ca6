"""A running lab at one moment: what its cables have carried (`meter`), what has failed, its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.emulation.lab import Lab

MOST_LOG_BYTES = 1 << 16  # of the log in one answer; the rest comes with the next


class LabSampler:
    """Takes samples of one lab, for any thread."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._meter = lab, lab.meter()

    def sample(self, log_from: int = 0) -> dict[str, Any]:
        """Return the lab's state at this moment.

        Parameters
        ----------
        log_from : int
            Where in the lab's log to go on reading: ``log_to`` of the sample before.

        Returns
        -------
        dict
            ``at_s`` by CLOCK_MONOTONIC; ``sent_bytes`` from a and from b of each cable, in the
            order of `Topology.links`, and so ``waiting_bytes``, in the port's queue now, and
            ``dropped`` packets, by that queue so far, both 0 where there is no rate;
            ``received_bytes`` of IP packets by each server's programs, acknowledgements included;
            ``faults`` and ``dead``; ``shapes``: both ends of cables that are not as usual, and how
            they are, in words and in Mbit/s; the ``log`` since `log_from`.
        """
        lab, counts = self._lab, self._meter.read()
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

    def close(self) -> None:
        """Close what is open."""
        self._meter.close()

    def _log(self, start: int) -> tuple[list[str], int]:
        """Return the log's whole lines from there on, and where the next begins."""
        with (self._lab.folder / "events.jsonl").open("rb") as file:
            file.seek(start)
            text = file.read(MOST_LOG_BYTES)
        whole = text[: text.rfind(b"\n") + 1]
        return whole.decode().splitlines(), start + len(whole)
