"""Root tests run in sandboxes, as those of the emulation do."""

import runpy
from pathlib import Path

_EMULATION = Path(__file__).parents[1] / "emulation" / "conftest.py"
pytest_pyfunc_call = runpy.run_path(str(_EMULATION))["pytest_pyfunc_call"]
