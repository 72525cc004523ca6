"""A program on a server of this machine's part; it ends with whoever started it.

Its arguments are the part's folder, the server's address, and the program's words.
"""

from __future__ import annotations

import signal
import sys
from functools import partial
from pathlib import Path

from experiments.control.client import entrance
from experiments.control.entering import end_as, run_within
from hosts.linux.calls import die_with_parent
from topos.base.errors import PillarboxError


def main() -> None:
    """Run it, and end as it does."""
    folder, server, *words = sys.argv[1:]
    try:
        namespaces = entrance(Path(folder), server).files
    except PillarboxError as error:
        sys.exit(f"pillarbox: {error}")
    end_as(run_within(namespaces, words, partial(die_with_parent, signal.SIGKILL)))


if __name__ == "__main__":
    main()
