"""OpenFlow controller of the mini-switches of server-centric networks on Open vSwitch.

In the papers, a switch only connects a few ports. This module expresses that in OpenFlow, in one
of three ways, and installs no other entries:

- ``learning``: the controller receives each frame from an address that is new at its port; a frame
  to an unknown address goes to all other ports;
- ``static``: a computed entry for each plugged port, without learning;
- ``vlan``: all mini-switches are one large switch, divided by VLANs: incoming frames get the tag of
  the port's mini-switch, and leave only by ports with the same tag.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pillarbox.experiments.lab.emulation.kits import application, kit_module
from pillarbox.experiments.lab.emulation.ovs import large_switch_port
from pillarbox.topos.base.topology import Topology

# Priorities of OpenFlow entries for frames with unknown and with known MAC addresses.
UNKNOWN_MAC_PRIORITY, KNOWN_MAC_PRIORITY = 0, 1
HEADER_BYTES = 64  # bytes of a frame that a switch sends to the OpenFlow controller
GROUP_BIT = "01:00:00:00:00:00"  # group (multicast) bit of a MAC address
VLAN_TAG_PRESENT = 0x1000  # OFPVID_PRESENT: the frame has a VLAN tag
DESTINATION_TABLE = 1  # number of the OpenFlow table of destinations, after that of sources
ETH_VLAN = 0x8100

events = kit_module("controller.ofp_event")
handler = kit_module("controller.handler")
protocol = kit_module("ofproto.ofproto_v1_3")
Application: Any = application()


class MiniSwitches(Application):
    """OpenFlow application that configures mini-switches: learning, static, or VLANs."""

    OFP_VERSIONS = (protocol.OFP_VERSION,)

    def __init__(self, *args: Any, topology: Topology, kind: str, **others: Any) -> None:
        super().__init__(*args, **others)
        self.topology, self.kind = topology, kind
        self._ready: set[int] = set()

    @handler.set_ev_cls(events.EventOFPSwitchFeatures, handler.CONFIG_DISPATCHER)
    def connected(self, event: Any) -> None:
        """Install the OpenFlow entries of a bridge that has connected."""
        bridge = event.msg.datapath
        getattr(self, f"_install_{self.kind}_entries")(bridge)
        bridge.send_msg(bridge.ofproto_parser.OFPBarrierRequest(bridge))

    # A barrier reply may arrive before os-ken or Ryu itself has queried the bridge's ports.
    @handler.set_ev_cls(
        events.EventOFPBarrierReply, [handler.CONFIG_DISPATCHER, handler.MAIN_DISPATCHER]
    )
    def bridge_has_entries(self, event: Any) -> None:
        """Print ``ready`` when all OpenFlow bridges have their entries."""
        self._ready.add(event.msg.datapath.id)
        if len(self._ready) == (1 if self.kind == "vlan" else self.topology.switches):
            print("ready", flush=True)

    @handler.set_ev_cls(events.EventOFPPacketIn, handler.MAIN_DISPATCHER)
    def learn_source_address(self, event: Any) -> None:
        """Install an OpenFlow entry for a frame's source MAC address at its incoming port."""
        bridge, port = event.msg.datapath, event.msg.match["in_port"]
        source = event.msg.data[6:12].hex(":")
        out = bridge.ofproto_parser.OFPActionOutput(port)
        self._add_entry(bridge, KNOWN_MAC_PRIORITY, {"eth_dst": source}, [out], DESTINATION_TABLE)
        self._add_entry(
            bridge, KNOWN_MAC_PRIORITY, {"in_port": port, "eth_src": source}, then=DESTINATION_TABLE
        )

    def _install_learning_entries(self, bridge: Any) -> None:
        output = bridge.ofproto_parser.OFPActionOutput
        tell = output(protocol.OFPP_CONTROLLER, HEADER_BYTES)
        self._add_entry(bridge, UNKNOWN_MAC_PRIORITY, {}, [tell], then=DESTINATION_TABLE)
        everywhere = [output(port + 1) for port, _ in self._connected_ports(bridge.id - 1)]
        self._add_entry(bridge, UNKNOWN_MAC_PRIORITY, {}, everywhere, DESTINATION_TABLE)

    def _install_static_entries(self, bridge: Any) -> None:
        output = bridge.ofproto_parser.OFPActionOutput
        outs = {mac: output(port + 1) for port, mac in self._connected_ports(bridge.id - 1)}
        for mac, out in outs.items():
            self._add_entry(bridge, KNOWN_MAC_PRIORITY, {"eth_dst": mac}, [out])
        self._add_entry(
            bridge, KNOWN_MAC_PRIORITY, {"eth_dst": (GROUP_BIT, GROUP_BIT)}, list(outs.values())
        )

    def _install_vlan_entries(self, bridge: Any) -> None:
        parser = bridge.ofproto_parser
        for switch in range(self.topology.switches):
            tag = VLAN_TAG_PRESENT | (switch + 1)
            on = [parser.OFPActionPushVlan(ETH_VLAN), parser.OFPActionSetField(vlan_vid=tag)]
            everywhere = [parser.OFPActionPopVlan()]
            for port, mac in self._connected_ports(switch):
                number = large_switch_port(self.topology, switch, port)
                self._add_entry(
                    bridge, KNOWN_MAC_PRIORITY, {"in_port": number}, on, then=DESTINATION_TABLE
                )
                out = [parser.OFPActionPopVlan(), parser.OFPActionOutput(number)]
                self._add_entry(
                    bridge,
                    KNOWN_MAC_PRIORITY,
                    {"vlan_vid": tag, "eth_dst": mac},
                    out,
                    DESTINATION_TABLE,
                )
                everywhere.append(parser.OFPActionOutput(number))
            several = {"vlan_vid": tag, "eth_dst": (GROUP_BIT, GROUP_BIT)}
            self._add_entry(bridge, KNOWN_MAC_PRIORITY, several, everywhere, DESTINATION_TABLE)

    def _connected_ports(self, switch: int) -> Iterator[tuple[int, str]]:
        """Yield a mini-switch's ports with a cable, and the MAC address at each cable's other end.

        Output to all these ports differs from OpenFlow's "flood", which includes the bridge's own
        interface.
        """
        for port, plug in self.topology.neighbours(self.topology.servers + switch):
            yield port, self.topology.mac(plug.node, plug.port)

    def _add_entry(
        self,
        bridge: Any,
        priority: int,
        match: dict[str, Any],
        actions: Sequence[Any] = (),
        table: int = 0,
        then: int | None = None,
    ) -> None:
        parser = bridge.ofproto_parser
        instructions = [parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, actions)]
        if then is not None:
            instructions.append(parser.OFPInstructionGotoTable(then))
        entry = parser.OFPFlowMod(
            bridge,
            table_id=table,
            priority=priority,
            match=parser.OFPMatch(**match),
            instructions=instructions,
        )
        bridge.send_msg(entry)
