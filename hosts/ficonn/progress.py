"""The PR field of a probe, as the wire has it and as Algorithm 3 has it (`hosts.ficonn.rules`)."""

from __future__ import annotations

from hosts.ficonn import rules, tar
from hosts.wire.ficonn import BYONE, BYZERO
from topos.ficonn import FiConn

_ENTRIES = {BYZERO: rules.BYZERO, BYONE: rules.BYONE}
_ON_WIRE = {here: wire for wire, here in _ENTRIES.items()}


def progress_of(ficonn: FiConn, entries: tuple[int, ...]) -> tar.Progress | None:
    """Return what entries on the wire say, None where they cannot be of this network.

    >>> progress_of(FiConn(4, 2), (BYZERO, 0)) == (rules.BYZERO, 0)
    True
    """
    found = [
        _ENTRIES[entry] if entry in _ENTRIES else ficonn.server_of_uid(entry) for entry in entries
    ]
    known = all(entry < ficonn.servers for entry in found)
    return tuple(found) if known and len(found) <= ficonn.k + 1 else None


def entries_of(ficonn: FiConn, progress: tar.Progress) -> tuple[int, ...]:
    """Return the entries for the wire.

    >>> entries_of(FiConn(4, 2), (rules.BYONE, 0)) == (BYONE, 0)
    True
    """
    return tuple([_ON_WIRE[pr] if pr in _ON_WIRE else ficonn.uid(pr) for pr in progress])
