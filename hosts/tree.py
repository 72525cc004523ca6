"""The tree of learning bridges that the papers' testbeds are measured against.

The switches learn where each server is, and a tree leaves them one way: a host has nothing to do.
"""

from hosts.base.algorithms import Algorithm
from hosts.base.direct import Direct, direct_path

ALGORITHMS = {
    "bridge": Algorithm(
        "learning bridges: the one way through the tree", direct_path, router=Direct
    )
}
