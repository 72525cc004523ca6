"""Multipath TCP of the servers: limits and endpoints of the kernel's path manager, and sockets.

A server's application interface has an address for each port (`pillarbox.topos.base.addressing`). A
client opens a Multipath TCP connection between the primary addresses of two servers; the routers
pin its first subflow to the client's port 0. The *endpoints* set here are the addresses of the
client's ports 1, 2, ...: the kernel opens a subflow from each of them, and the routers pin it to
that port. So a connection has one subflow by each port of the client, on disjoint paths, whichever
end the client is. No address is announced to the peer (ADD_ADDR): a subflow from each port of both
ends would be on the same cables again.

A program opens Multipath TCP sockets with the protocol number IPPROTO_MPTCP. For programs that do
not, a preloaded library opens them (`mptcp_sockets.c`), which is compiled when it is first used.
"""

from __future__ import annotations

import errno
import hashlib
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from pillarbox.experiments.base.processes import with_variables
from pillarbox.experiments.lab.linux.namespaces import write_sysctl
from pillarbox.hosts.linux import netlink
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.calls import in_new_namespace
from pillarbox.hosts.linux.multipath import MOST_SUBFLOWS
from pillarbox.hosts.live.lab_programs import BUILD, compiled_once
from pillarbox.topos.base.addressing import dotted_quad
from pillarbox.topos.base.errors import PillarboxError, UnsupportedError, require
from pillarbox.topos.base.topology import Topology

PATH_MANAGER = "mptcp_pm"  # generic netlink family of the kernel's path manager
MOST_FURTHER = MOST_SUBFLOWS - 1  # the kernel's limit of further subflows, and of endpoints
ENABLED = Path("/proc/sys/net/mptcp/enabled")
# Sysctls of all servers of a lab with Multipath TCP. After a loss, data of a silent path is sent
# again on another one after `stale_loss_cnt` + 1 retransmission timeouts (default: 4). A
# connection whose first packets are lost stays Multipath TCP (default: after 2 losses it becomes
# TCP, and so do all later connections for an hour).
SYSCTLS = {
    "net/mptcp/enabled": "1",
    "net/mptcp/pm_type": "0",  # the kernel's path manager
    "net/mptcp/scheduler": "default",
    "net/mptcp/checksum_enabled": "0",
    "net/mptcp/allow_join_initial_addr_port": "1",
    "net/mptcp/stale_loss_cnt": "1",
    "net/mptcp/blackhole_timeout": "0",
    "net/mptcp/syn_retrans_before_tcp_fallback": "128",
    "net/mptcp/close_timeout": "60",
}
SET_ALREADY = (errno.EEXIST, errno.EBUSY)  # errors for an endpoint that exists
SOURCE = Path(__file__).with_name("mptcp_sockets.c")
COMPILER = ("clang", "-O2", "-shared", "-fPIC", "-nostdlib")  # libc is that of the program
SEPARATOR = re.compile(r"[\s:]")  # between the libraries of LD_PRELOAD
LACK = "programs cannot use Multipath TCP: "  # beginning of errors
COMPILE_S = 60.0  # upper bound for the compilation of the library, in seconds

_GENERIC = struct.Struct("=BBxx")  # struct genlmsghdr: command, version


def missing() -> str:
    """Return why this kernel has no Multipath TCP, "" if it has."""
    if not ENABLED.exists():
        return "this kernel is built without Multipath TCP (CONFIG_MPTCP)"
    try:
        with in_new_namespace():
            write_sysctl("net/mptcp/enabled", "1")
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_MPTCP):
                pass
            with closing(netlink.Netlink(nl.NETLINK_GENERIC)) as asked:
                path_manager_id(asked)
    except (OSError, PillarboxError) as error:
        return f"no Multipath TCP socket can be opened: {error}"
    return ""


def check_supported() -> None:
    """Raise UnsupportedError if this kernel has no Multipath TCP."""
    why = missing()
    require(not why, f"{why}: use transport tcp", UnsupportedError)


def subflow_ports(topology: Topology, server: int, subflows: int | None) -> list[int]:
    """Return the ports of a server from whose addresses its connections open further subflows.

    The first subflow belongs to port 0. Ports without a cable have no subflow. A connection has at
    most MOST_SUBFLOWS.

    >>> from pillarbox import topos
    >>> bcube = topos.parse("bcube,4,2")
    >>> subflow_ports(bcube, 0, None), subflow_ports(bcube, 0, 2)
    ([1, 2], [1])
    """
    most = min(topology.ports if subflows is None else subflows, MOST_SUBFLOWS)
    cabled = {port for port, _ in topology.neighbours(server)}
    return [port for port in range(1, topology.ports) if port in cabled][: most - 1]


def set_up(topology: Topology, server: int, subflows: int | None) -> None:
    """Set sysctls, limits and endpoints of Multipath TCP in the current namespace, of a server.

    It changes nothing if they are set already.
    """
    for name, value in SYSCTLS.items():
        with suppress(OSError):  # values that this kernel does not offer
            write_sysctl(name, value)
    ports = subflow_ports(topology, server, subflows)
    with closing(netlink.Netlink(nl.NETLINK_GENERIC)) as sending:
        manager = path_manager_id(sending)
        addresses = [(port, topology.port_ipv4(server, port)) for port in ports]
        endpoints = [_endpoint(manager, port, ipv4) for port, ipv4 in addresses]
        # The peer of a client tries subflows to the client, too, which the client refuses. They
        # count until then: the limit is twice the number.
        limit = min(MOST_FURTHER, 2 * (topology.ports - 1))
        sending.send([_limits(manager, limit), *endpoints], ignore=SET_ALREADY)


def path_manager_id(sending: netlink.Netlink) -> int:
    """Return the number of the path manager's generic netlink family."""
    request = _GENERIC.pack(nl.CTRL_CMD_GETFAMILY, 1)
    for payload in sending.dump(nl.GENL_ID_CTRL, request, "list the netlink families"):
        found = dict(netlink.attributes(payload, _GENERIC.size))
        if found.get(nl.CTRL_ATTR_FAMILY_NAME, b"").rstrip(b"\0") == PATH_MANAGER.encode():
            return int.from_bytes(found[nl.CTRL_ATTR_FAMILY_ID][:2], sys.byteorder)
    raise UnsupportedError("this kernel has no path manager of Multipath TCP")


def _limits(manager: int, subflows: int) -> netlink.Message:
    body = netlink.number(nl.MPTCP_PM_ATTR_RCV_ADD_ADDRS, 0)
    body += netlink.number(nl.MPTCP_PM_ATTR_SUBFLOWS, subflows)
    return _request(manager, nl.MPTCP_PM_CMD_SET_LIMITS, body, "limit subflows")


def _endpoint(manager: int, port: int, ipv4: int) -> netlink.Message:
    """Return the request for a subflow endpoint; its number is the port's."""
    inner = netlink.attribute(nl.MPTCP_PM_ADDR_ATTR_FAMILY, struct.pack("=H", socket.AF_INET))
    inner += netlink.attribute(nl.MPTCP_PM_ADDR_ATTR_ID, struct.pack("=B", port))
    inner += netlink.attribute(nl.MPTCP_PM_ADDR_ATTR_ADDR4, ipv4.to_bytes(4, "big"))
    inner += netlink.number(nl.MPTCP_PM_ADDR_ATTR_FLAGS, nl.MPTCP_PM_ADDR_FLAG_SUBFLOW)
    body = netlink.attribute(nl.MPTCP_PM_ATTR_ADDR | nl.NLA_F_NESTED, inner)
    deed = f"add the Multipath TCP endpoint {dotted_quad(ipv4)}"
    return _request(manager, nl.MPTCP_PM_CMD_ADD_ADDR, body, deed)


def _request(manager: int, command: int, body: bytes, deed: str) -> netlink.Message:
    header = _GENERIC.pack(command, nl.MPTCP_PM_VERSION)
    return netlink.Message(manager, 0, header + body, deed)


# -- programs --------------------------------------------------------------------------------------


def library() -> Path:
    """Return the library that opens Multipath TCP sockets in programs; compile it if missing."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    found = BUILD / f"{SOURCE.stem}-{digest}.so"
    require(
        not SEPARATOR.search(str(found)),
        f"{LACK}the path {found} has a blank or colon, which separates libraries in LD_PRELOAD: "
        "install Pillarbox in another folder",
        UnsupportedError,
    )
    try:
        return compiled_once(found, _compile_library)
    except FileNotFoundError:
        raise UnsupportedError(f"{LACK}install clang, binutils and libc6-dev") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedError(f"{LACK}{SOURCE.name} cannot be compiled: {error}") from None


def _compile_library(made: Path) -> None:
    command = [*COMPILER, str(SOURCE), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMPILE_S)
    why = "".join(done.stderr.strip().splitlines()[:1])
    require(not done.returncode, f"{LACK}{SOURCE.name} does not compile: {why}")


def lack_for_programs() -> str:
    """Return why programs cannot use Multipath TCP in place of TCP, "" if they can."""
    try:
        library()
    except PillarboxError as error:
        return str(error)
    return ""


def with_multipath(command: Sequence[str]) -> list[str]:
    """Return the command that runs a program with Multipath TCP in place of TCP."""
    return with_variables([f"LD_PRELOAD={library()}"], command)


def line_with_multipath(line: str) -> str:
    """Return the line of a shell whose programs use Multipath TCP in place of TCP."""
    return f"export LD_PRELOAD={library()}; {line}"
