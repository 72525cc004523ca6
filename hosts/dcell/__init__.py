"""DCell's routing (Guo 2008): divide at the link between two sub-DCells, and conquer."""

from hosts.base.algorithms import Algorithm
from hosts.dcell.paths import path
from hosts.dcell.plain import DCellRouting

ALGORITHMS = {"dcell": Algorithm("DCellRouting (Guo 2008, Fig. 3)", path, router=DCellRouting)}
