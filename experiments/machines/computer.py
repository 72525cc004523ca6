"""Network namespaces in the place of machines, and a bridge between them: machines on one computer.

Each has one card, ``card``, and an address of 198.18.0.0/15, which is for trying out networks and
nobody's (RFC 2544). The first address is that of the lab itself, which talks to all of them.
"""

from __future__ import annotations

import errno

from experiments.emulation.crossing import TUNNEL_BYTES
from experiments.emulation.network import HEADER_ROOM
from experiments.linux import netlink, offloads
from experiments.linux.namespaces import Namespace, fabric
from topos.base.errors import require

CARD, LAB = "card", "198.18.0.1"
MOST = 250
LEAST_MTU = 9000  # as cards in a data center have it
PREFIX_LENGTH = 15


def address_of(machine: int) -> str:
    """Return a machine's address.

    >>> address_of(0), address_of(1)
    ('198.18.0.2', '198.18.0.3')
    """
    return f"198.18.0.{machine + 2}"


class Computer:
    """As many machines as are wanted, as long as it is open.

    Parameters
    ----------
    machines : int
        How many.
    mtu : int
        Of a lab's packets, which their network has to carry with all headers.
    card_mtu : int, optional
        Of their cards; else large enough.
    """

    def __init__(self, machines: int, mtu: int, card_mtu: int | None = None) -> None:
        require(1 < machines <= MOST, f"a computer can be 2 to {MOST} machines, not {machines}")
        card_mtu = card_mtu or max(LEAST_MTU, mtu + HEADER_ROOM + TUNNEL_BYTES)
        self.addresses = [address_of(machine) for machine in range(machines)]
        home, bridge = fabric(), fabric().new_index()
        self.namespaces = [Namespace() for _ in range(machines)]
        with home.batch():
            home.send(netlink.bridge("machines", bridge, group=home.group))
            home.send(netlink.change(1, up=True))  # the loopback interface
            home.send(netlink.add_address(bridge, LAB, PREFIX_LENGTH))
            home.send(netlink.change(bridge, up=True))
            for machine, namespace in enumerate(self.namespaces):
                plug = netlink.End(f"machine{machine}", home.new_index(), home.descriptor)
                card = netlink.End(CARD, home.new_index(), namespace.descriptor)
                home.send(
                    netlink.cable(plug, card, mtu=card_mtu, group=home.group, bridge=bridge),
                    netlink.change(plug.ifindex, up=True),
                )
                namespace.send(
                    netlink.change(1, up=True),
                    netlink.add_address(card.ifindex, address_of(machine), PREFIX_LENGTH),
                    netlink.change(card.ifindex, up=True),
                )

    def cut_tunnels(self) -> bool:
        """Tell whether the cards of all machines take super-packets whole through tunnels."""
        found = []
        for namespace in self.namespaces:
            with namespace:
                found.append(offloads.is_on(CARD, offloads.TUNNEL_SEGMENTS))
        return all(found)

    def close(self) -> None:
        """Let go of all machines."""
        for namespace in self.namespaces:
            namespace.close()
        home = fabric()
        home.send(netlink.delete_group(home.group), ignore={errno.ENODEV})
