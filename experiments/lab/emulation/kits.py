"""The frameworks ("kits") of OpenFlow controllers: os-ken, and its predecessor Ryu.

A process uses one kit: the one given to `select_kit`, otherwise the first installed.
"""

from __future__ import annotations

import ast
import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pillarbox.topos.base.errors import UnknownNameError, meant, require

# Python packages of the OpenFlow controller frameworks: os-ken is maintained, Ryu is not.
OPENFLOW_KITS = {"os-ken": "os_ken", "ryu": "ryu"}

_selected: list[str] = []  # the kit of this process, if it was selected


def check_kit(kit: str) -> None:
    """Raise UnknownNameError if `kit` is no OpenFlow framework; "" stands for any."""
    known = f"there is no OpenFlow kit {kit!r}: {meant(kit, OPENFLOW_KITS)}"
    require(kit in ("", *OPENFLOW_KITS), known, UnknownNameError)


def select_kit(kit: str) -> None:
    """Set the OpenFlow framework that `kit_module` imports from in this process."""
    _selected[:] = [kit]


def installed_kit(wish: str = "") -> str:
    """Return the wished OpenFlow framework, or the first one; "" if it is not installed."""
    return next((kit for kit in OPENFLOW_KITS if kit == (wish or kit) and _is_installed(kit)), "")


def missing_kit(wish: str = "") -> str:
    """Return why an OpenFlow controller framework cannot be used, "" if it can."""
    if installed_kit(wish):
        return ""
    lack = f"{wish} is not" if wish else "neither os-ken nor ryu is"
    return f"{lack} installed: sudo ./pillarbox setup openflow"


def application_file(name: str) -> str:
    """Return the file of an OpenFlow application: FILE.py, or a module such as `ryu.app.rest_qos`.

    Raises UnknownNameError if an installed kit has no module of this name.
    """
    package = name.partition(".")[0]
    if package not in OPENFLOW_KITS.values() or name.endswith(".py"):
        return str(Path(name).resolve())
    try:
        found = find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None or not found.has_location or found.origin is None:
        raise UnknownNameError(
            f"there is no module {name}: check the name, or sudo ./pillarbox setup openflow"
        )
    return found.origin


def kit_of_files(files: tuple[str, ...], wish: str = "") -> str:
    """Return the kit that users' applications import; they are not executed.

    Raises PillarboxError if the files import both kits, or another one than the wished kit.
    """
    found = {kit: file for file in files for kit in _imported_kits(Path(file))}
    for kit, file in found.items():
        require(kit == (wish or kit), f"{file} is written for {kit}, not {wish}: use --kit {kit}")
    require(
        len(found) < 2,
        f"{' and '.join(files)} are written for {' and '.join(found)}: use one kit for all",
    )
    return next(iter(found), wish)


def application() -> Any:
    """Return the base class of OpenFlow applications in os-ken or Ryu."""
    manager = kit_module("base.app_manager")
    return getattr(manager, "OSKenApp", None) or manager.RyuApp


def kit_module(name: str) -> Any:
    """Return a module of the OpenFlow framework in use, os-ken or Ryu."""
    kit = _selected[0] if _selected else installed_kit()
    if kit == "ryu":
        # Ryu 4.34 imports ALREADY_HANDLED, which eventlet had until version 0.30.2.
        wsgi = importlib.import_module("eventlet.wsgi")
        if not hasattr(wsgi, "ALREADY_HANDLED"):
            wsgi.ALREADY_HANDLED = object()  # type: ignore[attr-defined]
    return importlib.import_module(f"{OPENFLOW_KITS[kit]}.{name}")


def has_kit_module(name: str) -> bool:
    """Return True if the OpenFlow framework in use has a module of this name."""
    kit_module("cfg")
    kit = _selected[0] if _selected else installed_kit()
    return find_spec(f"{OPENFLOW_KITS[kit]}.{name}") is not None


def _is_installed(kit: str) -> bool:
    return OPENFLOW_KITS[kit] in sys.modules or find_spec(OPENFLOW_KITS[kit]) is not None


def _imported_kits(file: Path) -> list[str]:
    """Return the kits that a Python file imports."""
    from pillarbox.hosts.base.load import source_of, user_file_errors

    with user_file_errors(file):
        tree = ast.parse(source_of(file), str(file))
    packages = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.add(node.module.partition(".")[0])
    return [kit for kit, package in OPENFLOW_KITS.items() if package in packages]
