"""Conversion of path probes and their PR field between the wire and `rules`."""

from __future__ import annotations

from pillarbox.hosts.ficonn import rules, tar
from pillarbox.hosts.wire.dcn import DcnHeader
from pillarbox.hosts.wire.ficonn import BYONE, BYZERO, PathProbe
from pillarbox.topos.ficonn import FiConn

_ENTRIES = {BYZERO: rules.BYZERO, BYONE: rules.BYONE}
_ON_WIRE = {here: wire for wire, here in _ENTRIES.items()}


def probe_of(
    ficonn: FiConn, ends: tuple[int | None, int | None], header: DcnHeader, message: PathProbe
) -> tar.TarProbe | None:
    """Return the received probe of a flow between two servers, None if the probe is invalid."""
    source, destination = ends
    progress = progress_of(ficonn, message.entries)
    if source is None or destination is None or source == destination or progress is None:
        return None
    if (header.source, header.destination) != (ficonn.uid(source), ficonn.uid(destination)):
        return None
    return tar.TarProbe(source, destination, progress, message.tries, message.back)


def progress_of(ficonn: FiConn, entries: tuple[int, ...]) -> tar.Progress | None:
    """Return the PR field of a received probe, None if one of its entries is invalid.

    >>> progress_of(FiConn(4, 2), (BYZERO, 0)) == (rules.BYZERO, 0)
    True
    """
    found = [
        _ENTRIES[entry] if entry in _ENTRIES else ficonn.server_of_uid(entry) for entry in entries
    ]
    known = all(entry < ficonn.servers for entry in found)
    return tuple(found) if known and len(found) <= ficonn.k + 1 else None


def entries_of(ficonn: FiConn, progress: tar.Progress) -> tuple[int, ...]:
    """Return the entries of the path-probe message that encode a probe's PR field.

    >>> entries_of(FiConn(4, 2), (rules.BYONE, 0)) == (BYONE, 0)
    True
    """
    return tuple([_ON_WIRE[pr] if pr in _ON_WIRE else ficonn.uid(pr) for pr in progress])
