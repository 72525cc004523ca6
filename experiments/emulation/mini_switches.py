"""Mini-switches of server-centric networks on Open vSwitch: the controller of their entries.

    python -m experiments.emulation.mini_switches SPEC KIND PORT

The papers ask of a switch only that it joins a few ports. Here that is said in OpenFlow, in three
ways, and nothing else is in the tables:

- ``learning``: the controller is told of a frame from an address that is new at its port; a frame
  to an address that it knows nothing of goes to all other ports;
- ``static``: an entry for each plugged port, computed; nothing is learnt;
- ``vlan``: all mini-switches are one large switch, cut up by VLANs: what comes in by a port gets
  its mini-switch's tag, and leaves by a port of the same tag only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import topos
from experiments.emulation.kits import application, kit_module, serve
from experiments.emulation.ovs import chassis_port
from topos.base.topology import Topology

UNKNOWN, KNOWN = 0, 1  # priorities
HEADER_BYTES = 64  # that the controller needs of a frame
GROUP_BIT = "01:00:00:00:00:00"  # of an address: for several
PRESENT = 0x1000  # OFPVID_PRESENT
SECOND = (
    1  # the table that looks at destinations, behind one that looks at where a frame comes from
)
ETH_VLAN = 0x8100

events = kit_module("controller.ofp_event")
handler = kit_module("controller.handler")
protocol = kit_module("ofproto.ofproto_v1_3")
Application: Any = application()


class MiniSwitches(Application):
    """Makes every bridge what `kind` says."""

    OFP_VERSIONS = (protocol.OFP_VERSION,)

    def __init__(self, *args: Any, topology: Topology, kind: str, **others: Any) -> None:
        super().__init__(*args, **others)
        self.topology, self.kind = topology, kind
        self._ready: set[int] = set()

    @handler.set_ev_cls(events.EventOFPSwitchFeatures, handler.CONFIG_DISPATCHER)
    def connected(self, event: Any) -> None:
        """Give a bridge its entries."""
        bridge = event.msg.datapath
        getattr(self, f"_{self.kind}")(bridge)
        bridge.send_msg(bridge.ofproto_parser.OFPBarrierRequest(bridge))

    # The answer may come before the kit itself has asked the bridge for its ports.
    @handler.set_ev_cls(
        events.EventOFPBarrierReply, [handler.CONFIG_DISPATCHER, handler.MAIN_DISPATCHER]
    )
    def has_entries(self, event: Any) -> None:
        """Say so when the last bridge has them."""
        self._ready.add(event.msg.datapath.id)
        if len(self._ready) == (1 if self.kind == "vlan" else self.topology.switches):
            print("ready", flush=True)

    @handler.set_ev_cls(events.EventOFPPacketIn, handler.MAIN_DISPATCHER)
    def frame_came(self, event: Any) -> None:
        """Learn by which port a frame's source is reached."""
        bridge, port = event.msg.datapath, event.msg.match["in_port"]
        source = event.msg.data[6:12].hex(":")
        out = bridge.ofproto_parser.OFPActionOutput(port)
        self._add(bridge, KNOWN, {"eth_dst": source}, [out], SECOND)
        self._add(bridge, KNOWN, {"in_port": port, "eth_src": source}, then=SECOND)

    def _learning(self, bridge: Any) -> None:
        output = bridge.ofproto_parser.OFPActionOutput
        tell = output(protocol.OFPP_CONTROLLER, HEADER_BYTES)
        self._add(bridge, UNKNOWN, {}, [tell], then=SECOND)
        everywhere = [output(port + 1) for port, _ in self._plugged(bridge.id - 1)]
        self._add(bridge, UNKNOWN, {}, everywhere, SECOND)

    def _static(self, bridge: Any) -> None:
        output = bridge.ofproto_parser.OFPActionOutput
        outs = {mac: output(port + 1) for port, mac in self._plugged(bridge.id - 1)}
        for mac, out in outs.items():
            self._add(bridge, KNOWN, {"eth_dst": mac}, [out])
        self._add(bridge, KNOWN, {"eth_dst": (GROUP_BIT, GROUP_BIT)}, list(outs.values()))

    def _vlan(self, bridge: Any) -> None:
        parser = bridge.ofproto_parser
        for switch in range(self.topology.switches):
            tag = PRESENT | (switch + 1)
            on = [parser.OFPActionPushVlan(ETH_VLAN), parser.OFPActionSetField(vlan_vid=tag)]
            everywhere = [parser.OFPActionPopVlan()]
            for port, mac in self._plugged(switch):
                number = chassis_port(self.topology, switch, port)
                self._add(bridge, KNOWN, {"in_port": number}, on, then=SECOND)
                out = [parser.OFPActionPopVlan(), parser.OFPActionOutput(number)]
                self._add(bridge, KNOWN, {"vlan_vid": tag, "eth_dst": mac}, out, SECOND)
                everywhere.append(parser.OFPActionOutput(number))
            several = {"vlan_vid": tag, "eth_dst": (GROUP_BIT, GROUP_BIT)}
            self._add(bridge, KNOWN, several, everywhere, SECOND)

    def _plugged(self, switch: int) -> Iterator[tuple[int, str]]:
        """Yield the mini-switch's ports that have a cable, with the address at its other end.

        To all of them is not OpenFlow's "flood", which is also to the bridge's own interface.
        """
        for port, plug in self.topology.neighbours(self.topology.servers + switch):
            yield port, self.topology.mac(plug.node, plug.port)

    def _add(
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


def main(spec: str, kind: str, port: str) -> None:
    """Serve the mini-switches until the end."""
    serve("experiments.emulation.mini_switches", port, topology=topos.parse(spec), kind=kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
