"""Rail-only's routing (Wang 2023): BCube's, since the network is a BCube of unequal levels.

The paper forwards traffic between different rails and domains over a server (abstract), as
BCubeRouting does by correcting one digit per hop. BSR's parallel paths leave by each port.
"""

from pillarbox.hosts import bcube
from pillarbox.hosts.base.network import Network

NETWORK = Network(
    algorithms=bcube.NETWORK.algorithms,
    rules=bcube.NETWORK.rules,
    headers=bcube.NETWORK.headers,
    distribution=bcube.NETWORK.distribution,
)
