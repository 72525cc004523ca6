"""Mini-switches in OpenFlow: a plain switch is all that servers which relay ask for."""

from __future__ import annotations

import select
import socket
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.emulation.ovs import OvsMiniSwitches, large_switch_port
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.lab.emulation.test_baselines import (
    SOON_S,
    assert_tcp_arrives,
    lab,
    needs_ovs,
    reached,
)

EXPERIMENTAL = 0x88B6  # an ethertype for local experiments, that no forwarder takes for its own
EVERYBODY = b"\xff" * 6


def raw_socket(live: Any, server: int, port: int) -> socket.socket:
    with live.host(server).live_namespace():
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EXPERIMENTAL))
    made.bind((live.topology.interface(server, port), EXPERIMENTAL))
    return made


@pytest.mark.root
@needs_ovs()
@pytest.mark.parametrize(
    ("spec", "kind"), [("bcube,2,1", "learning"), ("dpillar,4,2", "static"), ("bcube,2,1", "vlan")]
)
def test_servers_relay_over_mini_switches(spec: str, kind: str, tmp_path: Path) -> None:
    with lab(spec, tmp_path, switches=kind) as live:
        live.wait_converged()
        last = live.topology.servers - 1
        assert reached(live, 0, last) and reached(live, last, 0)
        assert_tcp_arrives(live, 0, last, 20_000)
        listeners = {
            (server, port): raw_socket(live, server, port)
            for server in range(1, last + 1)
            for port in range(live.topology.ports)
        }
        with raw_socket(live, 0, 0) as sender:
            source = bytes.fromhex(live.topology.mac(0, 0).replace(":", ""))
            sender.send(EVERYBODY + source + EXPERIMENTAL.to_bytes(2, "big") + bytes(50))
        switch = live.topology.server_plug(0, 0).node
        mates = {
            (plug.node, plug.port) for _, plug in live.topology.neighbours(switch) if plug.node != 0
        }
        for mate in mates:
            assert select.select([listeners[mate]], [], [], SOON_S)[0], f"{mate} hears nothing"
        heard = select.select(list(listeners.values()), [], [], 0)[0]
        assert {where for where, one in listeners.items() if one in heard} == mates
        for listener in listeners.values():
            listener.close()


@needs_ovs()
def test_ports_of_the_large_switch_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pillarbox.experiments.lab.emulation.ovs.sandbox.inside", lambda: True)
    network = topos.parse("dcell,4,1")
    ports = OvsMiniSwitches(network, "vlan", Path("/tmp")).bridges()["chassis"]
    assert len(ports) == len({number for _, number in ports}) == 20
    assert dict(ports)["s1-eth0"] == large_switch_port(network, 1, 0) == 5
    with pytest.raises(PillarboxError, match="they can be bridges, learning, static, vlan"):
        OvsMiniSwitches(network, "hub", Path("/tmp"))


@pytest.mark.root
def test_switches_that_route_are_no_mini_switches(tmp_path: Path) -> None:
    with (
        pytest.raises(PillarboxError, match="take --plane ovs instead of --switches"),
        lab("fattree,4", tmp_path, switches="static"),
    ):
        pass
