"""The process of a lab's OpenFlow controller, with our application or with users' applications.

    python -m pillarbox.experiments.lab.emulation.controller_process JSON

`ControllerOrder` has the keys of the argument. The controller listens on the loopback of the lab's
sandbox only, and so does the REST interface of users' applications (Ryu's `ryu.app.wsgi`). Users'
files are read with root's rights and executed after these rights were dropped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pillarbox import topos
from pillarbox.experiments.lab.emulation.kits import (
    application,
    has_kit_module,
    kit_module,
    select_kit,
)
from pillarbox.hosts.base.load import module_of, source_of
from pillarbox.hosts.linux.rights import take_role
from pillarbox.topos.base.errors import PillarboxError, require

LOOPBACK_ADDRESS = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class ControllerOrder:
    """Application of an OpenFlow controller: one of our modules, or users' files.

    Parameters
    ----------
    kit : str
        OpenFlow framework: ``os-ken`` or ``ryu``.
    port : int
        TCP port for the switches.
    module : str
        Module with our application, "" for users' files.
    network : mapping
        Keyword arguments of our application; ``spec`` becomes the topology.
    files : tuple of str
        Users' files.
    """

    kit: str
    port: int
    module: str = ""
    network: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()


def run_own_application(order: ControllerOrder) -> None:
    """Run the application of one of our modules until the process ends."""
    _configure(order.port)
    arguments = dict(order.network)
    arguments["topology"] = topos.parse(arguments.pop("spec"))
    applications = kit_module("base.app_manager").AppManager.get_instance()
    take_role("controller")
    # Loaded by its name, not as __main__: os-ken and Ryu search that module for applications.
    applications.load_apps([order.module])
    contexts = applications.create_contexts()
    kit_module("lib.hub").joinall(applications.instantiate_apps(**contexts, **arguments))


def run_users_applications(order: ControllerOrder) -> None:
    """Run users' applications as `ryu-manager --observe-links` does, until the process ends."""
    hub = kit_module("lib.hub")
    hub.patch()
    # All modules that define command-line options; the first is first because of circular imports.
    for name in ("base.app_manager", "log", "topology.switches"):
        kit_module(name)
    wsgi = kit_module("app.wsgi") if has_kit_module("app.wsgi") else None
    rest = [f"--wsapi-host={LOOPBACK_ADDRESS}"] if wsgi else []
    _configure(order.port, "--observe-links", *rest)
    kit_module("log").init_log()
    applications = kit_module("base.app_manager").AppManager.get_instance()
    files = [(Path(file), source_of(Path(file))) for file in order.files]
    take_role("controller", [file.parent for file, _ in files])
    names = []
    for file, source in files:
        sys.path.append(str(file.parent))  # modules next to the file, as ryu-manager does
        names.append(module_of(file, source, file.stem).__name__)
    before = len(applications.applications_cls)
    applications.load_apps(names)
    base = f"{application().__module__}.{application().__name__}"
    require(
        len(applications.applications_cls) > before,
        f"{' and '.join(order.files)} define no application: derive a class from {base}",
    )
    contexts = applications.create_contexts()
    running = applications.instantiate_apps(**contexts)
    web = wsgi.start_service(applications) if wsgi else None
    hub.joinall([*running, *([hub.spawn(web)] if web else [])])


def _configure(port: int, *options: str) -> None:
    listen = [f"--ofp-listen-host={LOOPBACK_ADDRESS}", f"--ofp-tcp-listen-port={port}"]
    kit_module("base.app_manager")  # first, since the kits' modules import one another
    kit_module("controller.controller")  # defines these options
    kit_module("cfg").CONF(args=[*listen, *options], project="pillarbox", version="")


def main(text: str) -> None:
    """Run the OpenFlow controller that the JSON text describes until the process ends."""
    order = ControllerOrder(**json.loads(text))
    select_kit(order.kit)
    try:
        (run_own_application if order.module else run_users_applications)(order)
    except PillarboxError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main(*sys.argv[1:])
