"""Names of servers in programs: what /etc/hosts says, and what programs are given instead of 4.3.

Every server has two names that any program can use, ``h19`` and ``4.3.dcell``, and its address is
what an IP address is called when a program asks for its name. But the address alone is no name to
a program: the system reads 4.3 as the IPv4 address 4.0.0.3, and 1.0.0.1 as itself. So where a user
writes a command line, addresses in it are replaced by the IP addresses that are meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from experiments.emulation.outside import ADDRESS, NAME
from experiments.linux import sandbox
from topos.base.errors import PillarboxError
from topos.base.topology import Topology

# A server, where programs take one: also in root@4.3, http://4.3:80/ and 4.3:/folder.
_MENTION = re.compile(
    r"((?:[a-z+]+://)?(?:[\w.+-]+@)?)(\d+(?:\.\d+)+|h\d+)((?:[:/].*)?)", re.DOTALL
)
# What stands behind one of these is a time, and no server, if it has only one point.
_TIMED = {"sleep", "timeout", "-i", "-t", "-w", "-W", "-m"}
_TIMED |= {"--interval", "--time", "--timeout", "--max-time", "--connect-timeout"}
# A shell's words: what is quoted in any way is left as it is.
_WORDS = re.compile(r"(?:[^\s'\"\\;|&<>()]|'[^']*'|\"(?:\\.|[^\"])*\"|\\.)+")


def make_known(topology: Topology) -> None:
    """Let the programs of a lab know its servers by name."""
    sandbox.name_hosts([f"{ADDRESS} {NAME}", *hosts_lines(topology)])


def hosts_lines(topology: Topology) -> Iterator[str]:
    """Yield a line of /etc/hosts for each server.

    >>> import topos
    >>> list(hosts_lines(topos.parse("dcell,4,1")))[19]
    '10.0.0.20 4.3 h19 4.3.dcell'
    """
    for server in range(topology.servers):
        address = topology.address(server)
        names = address, topology.node_name(server), f"{address}.{topology.kind}"
        yield " ".join([topology.ip(server), *names])


def with_ips(topology: Topology, words: Sequence[str]) -> list[str]:
    """Return a command with IP addresses in the place of servers' addresses and host names.

    >>> import topos
    >>> dcell = topos.parse("dcell,4,1")
    >>> " ".join(with_ips(dcell, "ping -i 0.2 -c 3 4.3".split()))
    'ping -i 0.2 -c 3 10.0.0.20'
    >>> with_ips(dcell, ["curl", "http://4.3:80/0.1", "4.4", "10.0.0.2", "1.1x"])
    ['curl', 'http://10.0.0.20:80/0.1', '4.4', '10.0.0.2', '1.1x']
    """
    found = []
    for before, word in zip(["", *words], words, strict=False):
        timed = before in _TIMED and word.count(".") == 1
        found.append(word if timed else _with_ip(topology, word))
    return found


def line_with_ips(topology: Topology, line: str) -> str:
    """Return a shell's line likewise; what is quoted stays.

    >>> import topos
    >>> line_with_ips(topos.parse("dcell,4,1"), "echo '4.3' \\\\4.3 >/tmp/x; ping -c1 h19|tail -1")
    "echo '4.3' \\\\4.3 >/tmp/x; ping -c1 10.0.0.20|tail -1"
    """
    places = list(_WORDS.finditer(line))
    words = with_ips(topology, [place[0] for place in places])
    for place, word in zip(reversed(places), reversed(words), strict=True):
        line = line[: place.start()] + word + line[place.end() :]
    return line


def _with_ip(topology: Topology, word: str) -> str:
    mention = _MENTION.fullmatch(word)
    if not mention:
        return word
    before, name, behind = mention.groups()
    with suppress(PillarboxError):
        topology.server_of_ip(name)
        return word
    with suppress(PillarboxError):
        return f"{before}{topology.ip(topology.node(name))}{behind}"
    return word
