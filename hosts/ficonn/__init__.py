"""FiConn's routing (Li 2009): traffic-oblivious by arithmetic, traffic-aware by probing."""

from hosts.base.algorithms import Algorithm
from hosts.base.network import Network
from hosts.ficonn.paths import tor_path
from hosts.ficonn.plain import Tor
from hosts.ficonn.router import Tar
from hosts.ficonn.setup import tar_around, tar_path

NETWORK = Network(
    algorithms={
        "tor": Algorithm("traffic-oblivious routing (Li 2009, Algorithm 2)", tor_path, router=Tor),
        "tar": Algorithm(
            "traffic-aware routing (Li 2009, Algorithm 3)", tar_path, around=tar_around, router=Tar
        ),
    },
)
