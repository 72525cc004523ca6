"""BCube's routing (Guo 2009): digits corrected one by one, and sources that choose the order."""

from hosts.base.algorithms import Algorithm
from hosts.bcube.paths import path, path_set
from hosts.bcube.plain import BCubeRouting

ALGORITHMS = {
    "bcube": Algorithm("BCubeRouting (Guo 2009, Fig. 2)", path, path_set, router=BCubeRouting)
}
