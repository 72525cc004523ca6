"""Growing and shrinking a running network; nodes in both networks keep running.

Servers keep their numbers, addresses and ports (`Topology.resized`). Switches can be renumbered,
as in the upper levels of a BCube; then they and their ports get the corresponding names and MAC
addresses. No carrier changes during a resize.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator

from pillarbox.experiments.lab.emulation.lab_network import LabNet
from pillarbox.experiments.lab.linux import link_requests
from pillarbox.experiments.lab.linux.namespaces import fabric
from pillarbox.topos.base.emulated import emulated
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

RENAMES_SINCE = 6, 2  # first kernel version that renames interfaces in use


def resize(net: LabNet, after: Topology) -> None:
    """Add the new nodes of a larger network, or remove those a smaller one lacks; all or none."""
    before = net.topology
    assert before is not None
    renamed = [old for old, new in new_switch_numbers(before, after).items() if old != new]
    release = platform.release()
    require(
        not renamed or tuple(map(int, release.split(".")[:2])) >= RENAMES_SINCE,
        f"the switches of {before.spec} have other names in {after.spec}, and this kernel "
        f"({release}) renames no port that is up: use one from {RENAMES_SINCE[0]}."
        f"{RENAMES_SINCE[1]} on",
    )
    if after.servers < before.servers:
        _shrink(net, before, after)
        return
    _renumber(net, before, after)
    try:
        _add_nodes(net, after)
    except BaseException:
        _shrink(net, after, before)
        raise


def new_switch_numbers(before: Topology, after: Topology) -> dict[int, int]:
    """Return the new number of each switch that is in both networks.

    >>> from pillarbox import topos
    >>> before = topos.parse("bcube,2,1,servers=2")
    >>> new_switch_numbers(before, before.whole)  # the switch <0,1> comes in between
    {0: 0, 1: 2, 2: 3}
    """
    return dict(sorted(set(_numbers(before, after))))


def _numbers(before: Topology, after: Topology) -> Iterator[tuple[int, int]]:
    for server in range(min(before.servers, after.servers)):
        for port in range(before.ports):
            old, new = (size.server_plug(server, port).node for size in (before, after))
            if old >= before.servers:
                yield old - before.servers, new - after.servers


def _renumber(net: LabNet, before: Topology, after: Topology) -> None:
    """Rename switches and their ports by the new numbers, and set the ports' MAC addresses."""
    net.topology = after
    numbers = new_switch_numbers(before, after)
    links = {intf: link for link in net.links for intf in (link.intf1, link.intf2)}
    with fabric().batch():
        # Rename the highest-numbered switch first when growing, the lowest first when shrinking:
        # each new name is then free.
        for old in sorted(numbers, reverse=after.servers > before.servers):
            switch = net.nameToNode.pop(f"s{old}")
            node = after.servers + numbers[old]
            switch.name = after.node_name(node)
            net.nameToNode[switch.name] = switch
            if numbers[old] != old:
                named = link_requests.change(switch.bridge, name=switch.name, deed=f"rename s{old}")
                fabric().send(named)
            for port, intf in switch.intfs.items():
                del switch.nameToIntf[intf.name]
                links[intf].rename(intf, after.interface(node, port), after.mac(node, port))
                switch.nameToIntf[intf.name] = intf


def _add_nodes(net: LabNet, after: Topology) -> None:
    """Add the missing hosts, switches and cables, and start them."""
    topo = emulated(after)
    with fabric().batch():
        hosts = [name for name in topo.hosts() if name not in net]
        switches = [name for name in topo.switches() if name not in net]
        for name in hosts:
            net.addHost(name, **topo.nodeInfo(name))
        for name in switches:
            net.addSwitch(name, **topo.nodeInfo(name))
        for _, _, options in topo.links(sort=True, withInfo=True):
            if options["intfName1"] not in net[options["node1"]].nameToIntf:
                net.addLink(**options)
        for name in hosts:
            net[name].configDefault()
        net.install_bridge_entries()
    with fabric().batch():
        for name in switches:
            net[name].start([])


def _shrink(net: LabNet, before: Topology, after: Topology) -> None:
    _remove_nodes(net, before, after)
    _renumber(net, before, after)
    net.install_bridge_entries()


def _remove_nodes(net: LabNet, before: Topology, after: Topology) -> None:
    """Remove the hosts, switches and cables that are not in the smaller network."""
    kept = new_switch_numbers(before, after)
    names = {before.node_name(server) for server in range(after.servers, before.servers)}
    names |= {f"s{switch}" for switch in range(before.switches) if switch not in kept}
    gone = {net[name] for name in names if name in net}
    for link in [each for each in net.links if {each.intf1.node, each.intf2.node} & gone]:
        net.delLink(link)
    for node in gone:
        net.delNode(node)
