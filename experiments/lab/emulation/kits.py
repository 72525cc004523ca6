"""The frameworks ("kits") of OpenFlow controllers: os-ken, and its predecessor Ryu.

The environment variable PILLARBOX_KIT selects a kit if both are installed.
"""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from typing import Any

# OpenFlow controller frameworks: os-ken is maintained, Ryu is not.
OPENFLOW_KITS = ("os_ken", "ryu")
CHOICE = "PILLARBOX_KIT"


def kits() -> list[str]:
    """Return the installed OpenFlow controller frameworks (os-ken, Ryu), the preferred first."""
    wish = os.environ.get(CHOICE)
    return [kit for kit in OPENFLOW_KITS if kit == (wish or kit) and find_spec(kit)]


def missing_kit() -> str:
    """Return why no OpenFlow controller framework can be used, "" if one can."""
    if kits():
        return ""
    wish = os.environ.get(CHOICE)
    if wish and wish not in OPENFLOW_KITS:
        return f"{CHOICE} is {wish!r}: it can be {' or '.join(OPENFLOW_KITS)}"
    lack = f"{wish} cannot" if wish else "neither os_ken nor ryu can"
    return f"{lack} be imported: sudo ./pillarbox setup openflow"


def application() -> Any:
    """Return the base class of OpenFlow applications in os-ken or Ryu."""
    manager = kit_module("base.app_manager")
    return getattr(manager, "OSKenApp", None) or manager.RyuApp


def kit_module(name: str) -> Any:
    """Return a module of the OpenFlow framework in use, os-ken or Ryu."""
    kit = kits()[0]
    if kit == "ryu":
        # Ryu 4.34 imports ALREADY_HANDLED, which eventlet had until version 0.30.2.
        wsgi = importlib.import_module("eventlet.wsgi")
        wsgi.ALREADY_HANDLED = object()  # type: ignore[attr-defined]
    return importlib.import_module(f"{kit}.{name}")


def serve(module: str, port: str, **network: Any) -> None:
    """Run an OpenFlow controller for switches at a loopback port until the process ends."""
    options = ["--ofp-listen-host=127.0.0.1", f"--ofp-tcp-listen-port={port}"]
    kit_module("cfg").CONF(args=options, project="pillarbox", version="")
    applications = kit_module("base.app_manager").AppManager.get_instance()
    # Loaded by its name, not as __main__: os-ken and Ryu search that module for applications.
    applications.load_apps([module])
    contexts = applications.create_contexts()
    kit_module("lib.hub").joinall(applications.instantiate_apps(**contexts, **network))
