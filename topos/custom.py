"""Topologies for stock Mininet: ``mn --custom topos/custom.py --topo dcell,4,1 --switch lxbr ...``.

Mininet executes this file outside the package, without ``__file__``, and reads the name ``topos``
from it as a dict of constructors. So this file adds the folder of package ``pillarbox`` to
``sys.path``, and must not bind the name ``topos`` to the package.
"""

import inspect
import sys
from pathlib import Path

HERE = inspect.currentframe().f_code.co_filename  # type: ignore[union-attr]
PARENT = Path(HERE).resolve().parents[1]  # the checkout, or the installed package
INSTALLED = (PARENT / "__init__.py").is_file()
sys.path.insert(0, str(PARENT.parent if INSTALLED else PARENT / "src"))

from pillarbox.topos.base.emulated import mininet_constructor  # noqa: E402
from pillarbox.topos.base.spec import kinds  # noqa: E402

topos = {kind: mininet_constructor(kind) for kind in kinds()}
