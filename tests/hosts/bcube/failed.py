"""Random failures of a BCube, and pairs of servers that they leave alive."""

import random

from pillarbox.hosts.base.failures import Failures
from pillarbox.topos.bcube import BCube


def random_failures(bcube: BCube, seed: int) -> Failures:
    """Servers, switches, cables, and links between two servers, up to a third of each."""
    source = random.Random(seed)

    def some(of: list) -> frozenset:
        return frozenset(source.sample(of, source.randrange(len(of) // 3 + 1)))

    cables = [frozenset((cable.a, cable.b)) for cable in bcube.links()]
    hops = [
        frozenset((server, peer))
        for server in range(bcube.servers)
        for port in range(bcube.ports)
        for peer in bcube.peers(server, port)
        if server < peer
    ]
    nodes = list(range(bcube.nodes))
    return [
        Failures(some(nodes[: bcube.servers])),
        Failures(some(nodes[bcube.servers :])),
        Failures(links=some(cables)),
        Failures(links=some(hops)),
        Failures(some(nodes), some(cables)),
    ][seed % 5]


def living_pair(bcube: BCube, failures: Failures, seed: int) -> tuple[int, int]:
    alive = [server for server in range(bcube.servers) if server not in failures.nodes]
    a, b = random.Random(seed).sample(alive, 2)
    return a, b
