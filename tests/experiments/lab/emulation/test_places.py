"""Programs at interfaces, with the kernel's hurry and without, and who gives that back."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pillarbox import topos
from pillarbox.experiments.lab.linux import cable_programs, kernel_settings, shaping
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux import tcx
from tests.experiments.labs import EBPF, PLANES, lab_of, wait_until

LOOPBACK = 1
# At a port of a switch, and in a patch panel.
PRIORITIES = [
    (cable_programs.OWN, cable_programs.CUT, cable_programs.LOSS, last)
    for last in (cable_programs.STRAIGHT_ON, cable_programs.PATCH)
]


def setting_of_our_own(folder: Path, how: str = "rw") -> None:
    """Give this sandbox a setting that nobody else changes; nor do we, if it is "ro"."""
    setting = folder / "rcu_expedited"
    setting.write_text("0\n")
    subprocess.run(["mount", "--bind", str(setting), str(tcx.HURRY)], check=True)
    subprocess.run(["mount", "-o", f"remount,bind,{how}", str(tcx.HURRY)], check=True)


@pytest.mark.root
@EBPF
@pytest.mark.parametrize("priorities", PRIORITIES)
def test_programs_stand_in_the_order_of_their_priorities(
    priorities: tuple[int, ...], tmp_path: Path
) -> None:
    from pillarbox.experiments.lab.linux.namespaces import fabric

    def standing() -> list[int]:
        return tcx.attached_program_ids(LOOPBACK, egress=False)

    setting_of_our_own(tmp_path)
    # A panel's is for what comes in alone, and stands in the same place.
    taps = {
        one: cable_programs.CableTap(LOOPBACK, nl.CLSACT_INGRESS, alone=one == cable_programs.PATCH)
        for one in priorities
    }
    places = fabric().places
    with kernel_settings.KernelSettings():
        assert not places.by_filters
        for order in permutations(priorities):
            numbers: dict[int, int] = {}
            for priority in (*order, order[0]):  # the last in place of the first
                places.attach(
                    taps[priority], priority, cable_programs.load(cable_programs.drop()), "try"
                )
                numbers.pop(priority, None)
                (numbers[priority],) = set(standing()) - set(numbers.values())
            assert standing() == [numbers[one] for one in priorities]
            for priority in order:
                places.detach(taps[priority], priority, "take it away")
            assert standing() == []


@pytest.mark.root
@EBPF
def test_only_programs_without_which_no_frame_is_lost_are_postponed(tmp_path: Path) -> None:
    from pillarbox.experiments.lab.linux.namespaces import fabric

    setting_of_our_own(tmp_path)
    tap, places = cable_programs.CableTap(LOOPBACK, nl.CLSACT_INGRESS), fabric().places
    with kernel_settings.KernelSettings():
        found = []
        with places.postponed():
            for priority in (cable_programs.STRAIGHT_ON, cable_programs.PATCH, cable_programs.OWN):
                places.run(cable_programs.drop(), [tap], priority, "try")
                found.append(len(tcx.attached_program_ids(LOOPBACK, egress=False)))
            places.run(cable_programs.drop(), [tap], cable_programs.OWN, "try another")
            places.detach(tap, cable_programs.STRAIGHT_ON, "cancel it")
        places.attach_postponed()
        found.append(len(tcx.attached_program_ids(LOOPBACK, egress=False)))
        places.run(cable_programs.drop(), [tap], cable_programs.LOSS, "try")
        found.append(len(tcx.attached_program_ids(LOOPBACK, egress=False)))
    assert found == [0, 1, 1, 2, 3]


@pytest.mark.few
@pytest.mark.root
@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("hurry", [True, False])
def test_a_lab_works_with_the_kernels_hurry_and_without(
    hurry: bool, plane: str, tmp_path: Path
) -> None:
    setting_of_our_own(tmp_path, "rw" if hurry else "ro")  # as in a container
    with lab_of("dcell,3,1", tmp_path, plane=plane, rate_mbit=10.0) as lab:
        from pillarbox.experiments.lab.linux.namespaces import fabric

        assert fabric().places.by_filters == (not hurry)

        def reached() -> bool:
            return " 0% packet loss" in lab.net["h0"].cmd(f"ping -c 1 -W 1 {lab.net['h11'].IP()}")

        assert reached()
        direct = next(iter(lab.topology.neighbours(0)))  # over a switch, then the cable to h3
        for node in (direct[1].node, 3):
            fault = lab.cut(0, node, silent=True)
            wait_until(lambda: lab.state(0)["down"], "the cut is not noticed")
            wait_until(reached, "there is no way around it")
            lab.end(fault)
            lab.wait_converged()
        lab.kill(3)
        wait_until(lambda: lab.state(0)["down"], "the death is not noticed")
        lab.revive(3)
        lab.wait_converged()
        assert reached()


@pytest.mark.root
@pytest.mark.parametrize("hurry", [True, False])
def test_frames_to_servers_pass_bridges_by_where_the_kernel_hurries(
    hurry: bool, tmp_path: Path
) -> None:
    from pillarbox.experiments.lab.emulation.lab_network import LabNet

    setting_of_our_own(tmp_path, "rw" if hurry else "ro")
    with LabNet(topos.parse("tree,2,1")) as net:
        h0, h1, late = net["h0"], net["h1"], net.addHost("late", ip="10.0.0.200/8")
        net.addLink(late, net["s0"])
        late.configDefault()
        net.staticArp()
        net["s0"].cmd("ip link set s0 promisc on")  # then it gets whatever it forwards

        def at_the_bridge(sender: Any, receiver: Any) -> int:
            before = received(net["s0"], "s0")
            assert " 0% packet loss" in sender.cmd(f"ping -c 3 -i 0.1 -W 10 {receiver.IP()}")
            return received(net["s0"], "s0") - before

        assert at_the_bridge(h0, h1) == (0 if hurry else 6)
        assert at_the_bridge(h0, late) == 6, "its port was plugged in by hand"
        before = received(h0, "h0-eth0")
        h0.cmd(f"arp -s 10.0.0.99 {h0.MAC()}; ping -c 3 -i 0.1 -W 0.1 10.0.0.99")
        assert received(h0, "h0-eth0") == before, "a frame came back to where it was from"

        mac = h1.MAC()
        net.delLink(net.linksBetween(h1, net["s0"])[0])
        net.addLink(h1, net["s0"], addr1=mac)
        h1.setIP("10.0.0.2/8")
        net.staticArp()
        assert at_the_bridge(h0, h1) == 6, "its cable was plugged in anew, by hand"


def received(node: Any, name: str) -> int:
    (link,) = json.loads(node.cmd(f"ip -j -s link show {name}"))
    return int(link["stats64"]["rx"]["packets"])


class Machine(NamedTuple):
    """The settings of a kernel, and where labs hold them."""

    settings: tuple[Path, ...]
    held: Path

    @property
    def values(self) -> set[str]:
        return {setting.read_text() for setting in self.settings}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Give a machine on which nothing is set, and that nobody else uses."""
    found = Machine(
        (tmp_path / "rcu_expedited", tmp_path / "htb_hysteresis"), tmp_path / "run" / "settings"
    )
    for setting in found.settings:
        setting.write_text("0\n")
    monkeypatch.setattr(tcx, "HURRY", found.settings[0])
    monkeypatch.setattr(shaping, "HYSTERESIS", found.settings[1])
    monkeypatch.setattr(tcx, "is_supported", lambda: True)
    monkeypatch.setattr(kernel_settings, "_wait_for_removals", lambda: None)  # which needs root
    monkeypatch.setattr(kernel_settings, "HELD", found.held)
    return found


OURS = {kernel_settings.OURS}


def test_the_first_lab_sets_them_and_the_last_gives_them_back(machine: Machine) -> None:
    first, second = kernel_settings.KernelSettings(), kernel_settings.KernelSettings()
    assert machine.values == OURS and shaping.in_bursts()
    first.end()
    assert machine.values == OURS and not kernel_settings.leftover_settings(remove=True)
    second.end()
    assert machine.values == {"0"} and not machine.held.exists() and not shaping.in_bursts()
    second.end()
    with kernel_settings.KernelSettings():
        assert machine.values == OURS
    assert machine.values == {"0"}


def test_what_others_have_set_is_left_alone(machine: Machine) -> None:
    for setting in machine.settings:
        setting.write_text("1\n")
    kernel_settings.KernelSettings().end()
    assert machine.values == {"1\n"} and not machine.held.exists()


def test_one_is_set_where_the_other_cannot_be(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcx, "is_supported", lambda: False)  # an older kernel
    hurry, hysteresis = machine.settings
    with kernel_settings.KernelSettings():
        assert (hurry.read_text(), hysteresis.read_text()) == ("0\n", kernel_settings.OURS)
    assert hysteresis.read_text() == "0"


def test_the_kernel_is_asked_for_htb_only_where_it_has_not_loaded_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(shaping, "_kernel_takes", asked.append)
    kernel_settings.KernelSettings().end()
    assert not asked
    machine.settings[1].unlink()
    kernel_settings.KernelSettings().end()
    ((first, *_),) = asked
    assert b"htb" in first.body


@pytest.mark.parametrize("by_next_lab", [False, True])
def test_what_a_killed_lab_left_is_given_back(machine: Machine, by_next_lab: bool) -> None:
    child = os.fork()
    if not child:
        kernel_settings.KernelSettings()
        os._exit(0)
    os.waitpid(child, 0)
    ours = list(machine.settings)
    assert machine.values == OURS and kernel_settings.leftover_settings(remove=False) == ours
    if by_next_lab:
        kernel_settings.KernelSettings().end()
    else:
        assert kernel_settings.leftover_settings(remove=True) == ours
    assert machine.values == {"0"} and not machine.held.exists()
    assert not kernel_settings.leftover_settings(remove=True)


def test_nothing_is_held_for_a_killed_lab_whose_settings_others_have_changed(
    machine: Machine,
) -> None:
    kernel_settings._locked().close()  # a lab's, that was killed
    for others in ("0\n", "1\n"):
        for setting in machine.settings:
            setting.write_text(others)
        machine.held.touch()
        assert not kernel_settings.leftover_settings(remove=False) and machine.held.exists()
        assert not kernel_settings.leftover_settings(remove=True) and not machine.held.exists()
        assert machine.values == {others}


def test_who_waits_for_the_last_to_go_begins_anew(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kernel_settings.KernelSettings()
    lock: Any = fcntl.flock

    def late(file: Any, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        first.end()  # between the opening of the file and its lock
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    second = kernel_settings.KernelSettings()
    assert machine.values == OURS and machine.held.exists()
    second.end()
    assert machine.values == {"0"} and not machine.held.exists()
