"""For stock Mininet: ``mn --custom topos/custom.py --topo dcell,4,1 --switch lxbr ...``.

Mininet executes this text by itself, without ``__file__`` and outside the package, and reads the
name ``topos`` from it as a dict of constructors: so the project's folder has to be put on the path
here, and the package ``topos`` must not be bound to its own name.
"""

import inspect
import sys
from pathlib import Path

HERE = inspect.currentframe().f_code.co_filename  # type: ignore[union-attr]
sys.path.insert(0, str(Path(HERE).resolve().parents[1]))

from topos.base.emulated import mininet_constructor  # noqa: E402
from topos.base.spec import kinds  # noqa: E402

topos = {kind: mininet_constructor(kind) for kind in kinds()}
