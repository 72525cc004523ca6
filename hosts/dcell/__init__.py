"""DCell's routing algorithms (Guo 2008): DCellRouting, and DFR, which avoids failures."""

from pillarbox.hosts.base.algorithms import Algorithm
from pillarbox.hosts.base.network import Network
from pillarbox.hosts.dcell import dfr
from pillarbox.hosts.dcell.parallel import path_set
from pillarbox.hosts.dcell.paths import path
from pillarbox.hosts.dcell.plain import DCellRouting
from pillarbox.hosts.dcell.router import Dfr

NETWORK = Network(
    algorithms={
        "dcell": Algorithm("DCellRouting (Guo 2008, Fig. 3)", path, path_set, router=DCellRouting),
        "dfr": Algorithm(
            "DFR: around failures (Guo 2008, Fig. 5)", dfr.path, around=dfr.around, router=Dfr
        ),
    },
)
