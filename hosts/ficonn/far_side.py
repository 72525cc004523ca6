"""TAR for servers of which only the backup link is left, whom plain probes never reach."""

from __future__ import annotations

from typing import ClassVar

from hosts.ficonn.router import Tar


class TarFarSide(Tar):
    """Traffic-aware routing whose probes may come by the far side of a backup link.

    Every other try of a probe that had no answer does, and so does the answer to it.
    """

    far_side: ClassVar[bool] = True
