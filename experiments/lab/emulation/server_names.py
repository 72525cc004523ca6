"""Names of servers in programs: host names, /etc/hosts, and replacement of 4.3 by an IP address.

The host name of a server is ``h19``, Mininet's name: programs on the server get it as their host
name, and all programs of the lab resolve it to the server's IP address. Aliases are
``4-3.dcell``, which the reverse look-up of the IP address returns (a legal host name, so that it
can be resolved again), ``4.3.dcell`` and ``s4-3``. In labs with port addresses, ``h19-1`` is the
address of port 1, which command lines also name ``4.3%1``.

Programs do not resolve the bare address: inet_aton parses 4.3 as the IPv4 address 4.0.0.3, and
getaddrinfo and gethostbyname call it before they read /etc/hosts. Therefore, addresses in a
user's command line are replaced with IP addresses.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from pillarbox.experiments.lab.emulation.external_network import ADDRESS, OUTSIDE
from pillarbox.experiments.lab.linux import sandbox
from pillarbox.topos.base.addressing import End
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.topology import Topology

# Matches a server address in a command argument, as in root@4.3, http://4.3:80/, 4.3:/folder.
_MENTION = re.compile(
    r"((?:[a-z+]+://)?(?:[\w.+-]+@)?)(\d+(?:\.\d+)+(?:%\d+)?|h\d+(?:-\d+)?)((?:[:/].*)?)", re.DOTALL
)
# Programs whose arguments are hosts: an address that no server has is an error in these.
_ASK_HOSTS = {"ping", "traceroute", "tracepath", "mtr", "iperf", "iperf3", "curl", "wget", "ssh"}
_ASK_HOSTS |= {"scp", "sftp", "nc", "ncat", "telnet", "netperf", "arping", "nping", "hping3", "ab"}
_IPV4_NUMBERS = 4
# Programs and options that take a time or rate: the argument 0.5 is then no server address.
_TIMED = {"sleep", "timeout", "-i", "-t", "-w", "-W", "-m", "-b", "-O", "--bitrate"}
_TIMED |= {"--interval", "--time", "--timeout", "--max-time", "--connect-timeout"}
_UNUSUAL = re.compile(r"[^a-z0-9-]")  # characters not allowed in a host name
# Matches words and quoted parts of a shell command line; only words are changed.
_WORDS = re.compile(r"(?:[^\s'\"\\;|&<>()]|'[^']*'|\"(?:\\.|[^\"])*\"|\\.)+")


def make_known(
    topology: Topology, hosts: Iterable[Any] = (), *, port_addresses: bool = False
) -> None:
    """Write the servers' names to the lab's /etc/hosts; set the host names of the Mininet hosts.

    Outside a sandbox, programs use the machine's names, and also keep its host name.
    """
    lines = [f"{ADDRESS} {OUTSIDE}", *hosts_lines(topology, port_addresses=port_addresses)]
    if sandbox.name_hosts(lines):
        for host in hosts:
            host.live_namespace().set_host_name(host.name)


def hosts_lines(topology: Topology, *, port_addresses: bool = False) -> Iterator[str]:
    """Yield a line of /etc/hosts for each server, and for each port that has an address.

    >>> from pillarbox import topos
    >>> list(hosts_lines(topos.parse("dcell,4,1")))[19]
    '10.0.0.20 4-3.dcell h19 4.3.dcell s4-3'
    """
    network = _UNUSUAL.sub("-", topology.kind)
    for server in range(topology.servers):
        address = topology.address(server)
        hyphened = address.replace(".", "-")
        names = f"{hyphened}.{network}", topology.node_name(server)
        yield " ".join([topology.ip(server), *names, f"{address}.{topology.kind}", f"s{hyphened}"])
        for port in range(topology.ports) if port_addresses else ():
            ip = topology.end_ip(End(server, port))
            yield f"{ip} {topology.node_name(server)}-{port}"


def shell_prompt(topology: Topology, node: int) -> str:
    """Return the prompt of a shell on a node (PS1 of bash): ``0.0 dcell #``."""
    return rf"{topology.name(node)} {topology.kind} \$ "


def check_port_addresses(topology: Topology, port_addresses: bool) -> None:
    """Raise PillarboxError if the ports of a lab's servers have no addresses."""
    require(
        port_addresses,
        f"ports have no addresses in this lab: up {topology.spec} --port-addresses",
    )


def with_ips(topology: Topology, words: Sequence[str], *, port_addresses: bool = True) -> list[str]:
    """Return a command with IP addresses in place of servers' addresses and host names.

    >>> from pillarbox import topos
    >>> dcell = topos.parse("dcell,4,1")
    >>> " ".join(with_ips(dcell, "ping -i 0.2 -c 3 4.3".split()))
    'ping -i 0.2 -c 3 10.0.0.20'
    >>> " ".join(with_ips(dcell, "ping -I 0.0%1 4.3%0".split()))
    'ping -I 172.17.0.1 172.16.0.20'
    >>> with_ips(dcell, ["echo", "http://4.3:80/0.1", "4.4", "10.0.0.2", "1.1x"])
    ['echo', 'http://10.0.0.20:80/0.1', '4.4', '10.0.0.2', '1.1x']

    A program that takes hosts gets no address that no server has:

    >>> with_ips(dcell, ["ping", "9.9"])
    Traceback (most recent call last):
    pillarbox.topos.base.errors.PillarboxError: '9.9' is not a server of dcell,4,1: digit 9 is out of range: the numbers go from 0 to 4; ping would send to 9.0.0.9

    Nor does it get an address of a port in a lab without port addresses:

    >>> with_ips(dcell, ["ping", "4.3%0"], port_addresses=False)
    Traceback (most recent call last):
    pillarbox.topos.base.errors.PillarboxError: ports have no addresses in this lab: up dcell,4,1 --port-addresses
    """  # noqa: E501
    found, program = [], ""
    for before, word in zip(["", *words], words, strict=False):
        program = word.rpartition("/")[2] if word.rpartition("/")[2] in _ASK_HOSTS else program
        timed = before in _TIMED and word.count(".") == 1
        found.append(word if timed else _word_with_ip(topology, word, program, port_addresses))
    return found


def line_with_ips(topology: Topology, line: str, *, port_addresses: bool = True) -> str:
    """Return a shell command line with IP addresses in place of servers; quoted words stay.

    >>> from pillarbox import topos
    >>> line_with_ips(topos.parse("dcell,4,1"), "echo '4.3' \\\\4.3 >/tmp/x; ping -c1 h19|tail -1")
    "echo '4.3' \\\\4.3 >/tmp/x; ping -c1 10.0.0.20|tail -1"
    """
    places = list(_WORDS.finditer(line))
    words = with_ips(topology, [place[0] for place in places], port_addresses=port_addresses)
    for place, word in zip(reversed(places), reversed(words), strict=True):
        line = line[: place.start()] + word + line[place.end() :]
    return line


def _word_with_ip(topology: Topology, word: str, program: str, port_addresses: bool) -> str:
    mention = _MENTION.fullmatch(word)
    if not mention:
        return word
    before, name, behind = mention.groups()
    with suppress(PillarboxError):
        topology.server_of_ip(name)
        return word
    try:
        end = topology.end(name)
        check_port_addresses(topology, end.port is None or port_addresses)
        return f"{before}{topology.end_ip(end)}{behind}"
    except PillarboxError as error:
        if not program or name.count(".") + 1 == _IPV4_NUMBERS:
            return word
        sent = _ipv4_of_dotted_numbers(name)
        raise PillarboxError(
            f"{error}; {program} would send to {sent}" if sent else str(error)
        ) from None


def _ipv4_of_dotted_numbers(name: str) -> str:
    """Return the IPv4 address that programs parse from dotted numbers, "" if invalid."""
    with suppress(OSError):
        return socket.inet_ntoa(socket.inet_aton(name))
    return ""
