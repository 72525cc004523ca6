"""FiConn's routing (Li 2009): traffic-oblivious by arithmetic, traffic-aware by probing."""

from hosts.base.algorithms import Algorithm
from hosts.ficonn.paths import tor_path
from hosts.ficonn.plain import Tor

ALGORITHMS = {
    "tor": Algorithm("traffic-oblivious routing (Li 2009, Algorithm 2)", tor_path, router=Tor)
}
