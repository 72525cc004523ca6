"""The kits that OpenFlow controllers are written with: os-ken, and Ryu, from which it descends.

The environment's PILLARBOX_KIT chooses where both are installed.
"""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from typing import Any

KITS = ("os_ken", "ryu")  # the first is maintained
CHOICE = "PILLARBOX_KIT"


def kits() -> list[str]:
    """Return the kits that can be taken, by the names of their packages, the best first."""
    wish = os.environ.get(CHOICE)
    return [kit for kit in KITS if kit == (wish or kit) and find_spec(kit)]


def missing_kit() -> str:
    """Return why no kit can be taken; empty if one can."""
    if kits():
        return ""
    wish = os.environ.get(CHOICE)
    if wish and wish not in KITS:
        return f"{CHOICE} is {wish!r}: it can be {' or '.join(KITS)}"
    lack = f"{wish} cannot" if wish else "neither os_ken nor ryu can"
    return f"{lack} be imported: sudo ./pillarbox setup openflow"


def application() -> Any:
    """Return the class from which the kit's applications derive."""
    manager = kit_module("base.app_manager")
    return getattr(manager, "OSKenApp", None) or manager.RyuApp


def kit_module(name: str) -> Any:
    """Return a module of the kit that is taken."""
    kit = kits()[0]
    if kit == "ryu":
        # Ryu 4.34 asks for a name that eventlet had until 0.30.2.
        wsgi = importlib.import_module("eventlet.wsgi")
        wsgi.ALREADY_HANDLED = object()  # type: ignore[attr-defined]
    return importlib.import_module(f"{kit}.{name}")


def serve(module: str, port: str, **network: Any) -> None:
    """Serve switches at a port of the loopback with a module's application until the end."""
    options = ["--ofp-listen-host=127.0.0.1", f"--ofp-tcp-listen-port={port}"]
    kit_module("cfg").CONF(args=options, project="pillarbox", version="")
    applications = kit_module("base.app_manager").AppManager.get_instance()
    # Loaded by its name, not as the program that it is: the kit looks for its classes there.
    applications.load_apps([module])
    contexts = applications.create_contexts()
    kit_module("lib.hub").joinall(applications.instantiate_apps(**contexts, **network))
