"""TAR for servers that have only their backup link left, which the paper's probes never reach."""

from __future__ import annotations

from typing import ClassVar

from pillarbox.hosts.ficonn.router import Tar


class TarFarSide(Tar):
    """Traffic-aware routing whose probes may enter the destination by its backup link.

    Every other retry of an unanswered probe does so, and so does the response to it.
    """

    far_side: ClassVar[bool] = True
