"""The OpenFlow controller of a lab's switches: an application of os-ken or Ryu.

The controller installs the tables of `switch_tables` in every switch, one flow entry for each
server, and prints ``ready`` when all switches have theirs. Switches report the state of their
ports; if the routing avoids failures, the tables are recomputed, and only differences are sent.

An entry decrements the time to live, as a router does; the last switch also sets the server's MAC
address. If several ports lead to a server, a hash of addresses and ports selects one, with a
different basis on each switch (with the same basis, every switch would make the same choice for
the flows it receives: hash polarisation).
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from pillarbox.experiments.lab.emulation.kits import application, kit_module
from pillarbox.experiments.lab.emulation.switch_tables import Ports, Table, adapts, tables
from pillarbox.hosts.base.failures import Failures
from pillarbox.topos.base.topology import Topology

ETH_IP = 0x0800
PRIORITY = 1
HASH_BASES = 1 << 16
# Constants of Open vSwitch's OpenFlow extensions (nicira-ext.h), equal in os-ken and Ryu.
ADDRESSES_AND_PORTS = 3  # NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP
HIGHEST_RANDOM_WEIGHT = 1  # NX_BD_ALG_HRW

events = kit_module("controller.ofp_event")
handler = kit_module("controller.handler")
protocol = kit_module("ofproto.ofproto_v1_3")
Application: Any = application()


class TableKeeper(Application):
    """OpenFlow application that installs the routing's tables as entries of the switches."""

    OFP_VERSIONS = (protocol.OFP_VERSION,)

    def __init__(
        self, *args: Any, topology: Topology, routing: str, seed: int, **others: Any
    ) -> None:
        super().__init__(*args, **others)
        self.topology, self.routing, self.seed = topology, routing, seed
        self._wanted = tables(topology, routing)
        self._datapaths: dict[int, Any] = {}  # OpenFlow connections, by switch
        # forwarding tables installed in the switches, by switch
        self._entries: dict[int, Table] = {}
        self._down: dict[int, set[int]] = {}  # ports that have lost their carrier, by switch
        # switches that have their forwarding table; None once all had one
        self._ready: set[int] | None = set()

    @handler.set_ev_cls(events.EventOFPPortDescStatsReply, handler.CONFIG_DISPATCHER)
    def connected(self, event: Any) -> None:
        """Register a switch that has connected by OpenFlow, and install its forwarding table."""
        datapath = event.msg.datapath
        switch = datapath.id - 1
        self._datapaths[switch], self._entries[switch] = datapath, {}
        self._down[switch] = {port.port_no - 1 for port in event.msg.body if _is_down(port)}
        datapath.send_msg(self._delete_entry_request(datapath))
        self._failures_changed()
        self._update_flow_entries(switch)
        datapath.send_msg(datapath.ofproto_parser.OFPBarrierRequest(datapath))

    @handler.set_ev_cls(events.EventOFPBarrierReply, handler.MAIN_DISPATCHER)
    def switch_has_table(self, event: Any) -> None:
        """Print ``ready`` when all OpenFlow switches have confirmed their forwarding tables."""
        if self._ready is not None:
            self._ready.add(event.msg.datapath.id - 1)
            if len(self._ready) == self.topology.switches:
                print("ready", flush=True)
                self._ready = None

    @handler.set_ev_cls(events.EventOFPPortStatus, handler.MAIN_DISPATCHER)
    def port_changed(self, event: Any) -> None:
        """Record that a switch's port has lost or regained its carrier (OpenFlow port status)."""
        switch, port = event.msg.datapath.id - 1, event.msg.desc
        change = self._down[switch].add if _is_down(port) else self._down[switch].discard
        change(port.port_no - 1)
        self._failures_changed()

    @handler.set_ev_cls(events.EventOFPStateChange, handler.DEAD_DISPATCHER)
    def switch_disconnected(self, event: Any) -> None:
        """Forget a switch that has disconnected from the controller."""
        if event.datapath.id is not None:
            self._datapaths.pop(event.datapath.id - 1, None)

    def _failures_changed(self) -> None:
        if adapts(self.topology, self.routing):
            self._wanted = tables(self.topology, self.routing, self._failures())
            for switch in self._datapaths:
                self._update_flow_entries(switch)

    def _failures(self) -> Failures:
        servers, links = self.topology.servers, set()
        for switch, ports in self._down.items():
            for port in ports:
                # skips OpenFlow's local port of a switch, which has no cable
                if 0 <= port < self.topology.switch_ports:
                    far = self.topology.switch_plug(switch, port).node
                    links.add(frozenset((servers + switch, far)))
        return Failures(links=frozenset(links))

    def _update_flow_entries(self, switch: int) -> None:
        """Send a switch its missing OpenFlow entries, and delete its obsolete entries."""
        before, wanted = self._entries[switch], self._wanted[switch]
        datapath = self._datapaths[switch]
        for server in before.keys() - wanted.keys():
            datapath.send_msg(self._delete_entry_request(datapath, server))
        for server, ports in wanted.items():
            if before.get(server) != ports:
                datapath.send_msg(self._add_entry_request(datapath, server, ports))
        self._entries[switch] = wanted

    def _add_entry_request(self, datapath: Any, server: int, ports: Ports) -> Any:
        parser = datapath.ofproto_parser
        actions = [parser.OFPActionDecNwTtl()]
        if self.topology.switch_plug(datapath.id - 1, ports[0]).node == server:
            actions.append(parser.OFPActionSetField(eth_dst=self.topology.mac(server, 0)))
        if len(ports) == 1:
            actions.append(parser.OFPActionOutput(ports[0] + 1))
        else:
            actions.append(self._multipath_action(datapath, ports))
        instruction = parser.OFPInstructionActions(protocol.OFPIT_APPLY_ACTIONS, actions)
        return parser.OFPFlowMod(
            datapath,
            priority=PRIORITY,
            match=self._match_of_server(datapath, server),
            instructions=[instruction],
        )

    def _multipath_action(self, datapath: Any, ports: Ports) -> Any:
        """Return the OpenFlow action that spreads flows over those switch ports that are up."""
        basis = crc32(b"%d %d" % (self.seed, datapath.id)) % HASH_BASES
        return datapath.ofproto_parser.NXActionBundle(
            algorithm=HIGHEST_RANDOM_WEIGHT,
            fields=ADDRESSES_AND_PORTS,
            basis=basis,
            slave_type=kit_module("ofproto.nicira_ext").NXM_OF_IN_PORT,
            n_slaves=len(ports),
            ofs_nbits=0,
            dst=0,
            slaves=[port + 1 for port in ports],
        )

    def _delete_entry_request(self, datapath: Any, server: int | None = None) -> Any:
        """Return the OpenFlow request to delete a switch's entry for a server, or all entries."""
        return datapath.ofproto_parser.OFPFlowMod(
            datapath,
            command=protocol.OFPFC_DELETE,
            out_port=protocol.OFPP_ANY,
            out_group=protocol.OFPG_ANY,
            match=None if server is None else self._match_of_server(datapath, server),
        )

    def _match_of_server(self, datapath: Any, server: int) -> Any:
        match = datapath.ofproto_parser.OFPMatch
        return match(eth_type=ETH_IP, ipv4_dst=self.topology.ip(server))


def _is_down(port: Any) -> bool:
    return bool(port.state & protocol.OFPPS_LINK_DOWN or port.config & protocol.OFPPC_PORT_DOWN)
