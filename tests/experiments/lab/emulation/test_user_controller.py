"""Users' own OpenFlow applications on a lab's switches: Ryu's own ones, unchanged, and os-ken's."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.kits import application_file, kit_of_files
from pillarbox.experiments.lab.emulation.setting_checks import check_settings
from pillarbox.hosts.base.faults import Fault
from pillarbox.hosts.live.settings import LabSettings
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.lab.emulation.test_baselines import SOON_S, needs_ovs

LEARNED_S = 4 * SOON_S  # time for a learning switch to learn all servers on a busy machine
# An os-ken application: a hub, which sends every frame to the controller.
HUB = """
from {package}.base import app_manager
from {package}.controller import ofp_event
from {package}.controller.handler import MAIN_DISPATCHER, CONFIG_DISPATCHER, set_ev_cls
from {package}.ofproto import ofproto_v1_3 as protocol


class Hub(app_manager.{base}):
    OFP_VERSIONS = [protocol.OFP_VERSION]

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        path = event.msg.datapath
        parser = path.ofproto_parser
        action = parser.OFPActionOutput(protocol.OFPP_FLOOD)
        does = parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, [action])
        path.send_msg(parser.OFPFlowMod(path, match=parser.OFPMatch(), instructions=[does]))
"""


@contextmanager
def controlled(spec: str, folder: Path, *files: str, kit: str = "") -> Iterator[Any]:
    from mininet.log import setLogLevel

    from pillarbox.experiments.lab.emulation.local_fabric import running

    setLogLevel("critical")
    settings = LabSettings(controller=files, kit=kit, rate_mbit=100)
    with running(topos.parse(spec), settings, folder) as live:
        yield live


def wait_until(true: Callable[[], bool], limit_s: float = LEARNED_S) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline


def all_reach_all(live: Any) -> bool:
    servers = range(live.topology.servers)
    return all(
        None not in live.fabric.echoes(one, [o for o in servers if o != one], 1.0).values()
        for one in servers
    )


def topology_seen(live: Any, what: str) -> list[dict[str, Any]]:
    """Return switches or links as Ryu's rest_topology has discovered them."""
    url = f"http://127.0.0.1:8080/v1.0/topology/{what}"
    program = live.net["s0"].popen(["curl", "-s", url], stdout=subprocess.PIPE)
    found: list[dict[str, Any]] = json.loads(program.communicate(timeout=SOON_S)[0])
    return found


@pytest.mark.root
@needs_ovs("ryu")
@pytest.mark.parametrize(
    ("spec", "switches", "links"),
    [
        ("tree,4,4", 5, 8),
        pytest.param("fattree,4", 20, 64, marks=pytest.mark.long),
    ],
)
def test_applications_of_ryu_work_unchanged(
    spec: str, switches: int, links: int, tmp_path: Path
) -> None:
    files = "ryu.app.simple_switch_13", "ryu.app.rest_topology"
    with controlled(spec, tmp_path, *files) as live:
        wait_until(lambda: all_reach_all(live))
        wait_until(lambda: len(topology_seen(live, "links")) == links)
        assert len(topology_seen(live, "switches")) == switches
        assert live.trace(0, live.topology.servers - 1)["delivered"]
        assert live.computed(0, 1) == []


@pytest.mark.root
@pytest.mark.parametrize(
    ("package", "base", "kit"),
    [
        pytest.param("os_ken", "OSKenApp", "os-ken", marks=needs_ovs("os-ken")),
        pytest.param("ryu", "RyuApp", "ryu", marks=needs_ovs("ryu")),
    ],
)
def test_flooded_frames_do_not_circulate_and_avoid_failures(
    package: str, base: str, kit: str, tmp_path: Path
) -> None:
    hub = tmp_path / "hub.py"
    hub.write_text(HUB.format(package=package, base=base))
    with controlled("fattree,4", tmp_path, str(hub)) as live:
        assert live.switches.kit == kit
        last = live.topology.servers - 1
        wait_until(lambda: live.fabric.echoes(0, [last], 1.0)[last] is not None)
        fault = live.begin(Fault("switch", ("s8",)))  # the first aggregation switch is in the tree
        wait_until(lambda: live.fabric.echoes(0, [last], 1.0)[last] is not None)
        live.end(fault)
        wait_until(lambda: live.fabric.echoes(0, [last], 1.0)[last] is not None)


@pytest.mark.root
@needs_ovs("ryu")
def test_servers_relay_over_a_users_switches(tmp_path: Path) -> None:
    with controlled("bcube,2,1", tmp_path, "ryu.app.simple_switch_13") as live:
        live.wait_converged()
        wait_until(lambda: all_reach_all(live))


@pytest.mark.root
@needs_ovs()
@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import os_ken\n1 / 0\n", r"fails: ZeroDivisionError: division by zero \(line 2\)"),
        ("import os_ken\n", "define no application: derive a class from os_ken"),
        ("def f(:\n", "fails: SyntaxError"),
        ("import ryu, os_ken\n", "are written for os-ken and ryu: use one kit for all"),
        (
            "import os_ken\nopen('/etc/pillarbox-test', 'w')\n",
            r"fails: PermissionError: .*\(line 2\)",
        ),
    ],
)
def test_a_users_mistake_is_told(source: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(source)
    with pytest.raises(PillarboxError, match=told), controlled("tree,2,2", tmp_path, str(file)):
        pass
    assert not Path("/etc/pillarbox-test").exists()


def test_the_kit_is_that_of_the_files(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from ryu.base import app_manager\n")
    assert kit_of_files((str(file),)) == kit_of_files((str(file),), "ryu") == "ryu"
    with pytest.raises(PillarboxError, match=r"mine\.py is written for ryu, not os-ken: use --kit"):
        kit_of_files((str(file),), "os-ken")
    with pytest.raises(PillarboxError, match="cannot be read"):
        kit_of_files((str(tmp_path / "none.py"),))
    assert application_file(str(file)) == str(file)
    for name in ("ryu.app.no_such_application", "ryu.nothing.at_all"):
        with pytest.raises(PillarboxError, match=f"there is no module {name}"):
            application_file(name)
    file.write_text("import json\n")
    assert (kit_of_files((str(file),)), kit_of_files((str(file),), "ryu")) == ("", "ryu")


@pytest.mark.parametrize(
    ("spec", "settings", "told"),
    [
        ("tree,2,2", {"kit": "nox"}, "no OpenFlow kit 'nox'"),
        ("bcube,2,1", {"switches": "vlan"}, "replaces the vlan switches"),
        ("bcube,2,1", {"plane": "ovs"}, "no plane 'ovs'"),
        ("tree,2,2", {"plane": "python"}, "runs with plane auto or ovs"),
        ("fattree,4", {"routing": "hashed"}, "leave out the routing hashed"),
    ],
)
def test_settings_that_exclude_a_controller_are_refused(
    spec: str, settings: dict[str, str], told: str
) -> None:
    with pytest.raises(PillarboxError, match=told):
        check_settings(topos.parse(spec), LabSettings(controller=("mine.py",), **settings))


def test_up_refuses_a_kit_without_openflow() -> None:
    from click.testing import CliRunner

    from pillarbox.experiments.cli.commands.up import command

    found = CliRunner().invoke(command, ["tree,2,2", "--kit", "ryu"])
    assert "add --plane ovs, --switches or --controller" in str(found.exception)
