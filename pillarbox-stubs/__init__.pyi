# Types of pillarbox.py for type checkers and editors: a single module cannot contain py.typed.
from pathlib import Path

from experiments.apps.api.answers import CaptureFile as CaptureFile
from experiments.apps.api.answers import Change as Change
from experiments.apps.api.answers import Iperf as Iperf
from experiments.apps.api.answers import Link as Link
from experiments.apps.api.answers import NetworkSize as NetworkSize
from experiments.apps.api.answers import PacketPath as PacketPath
from experiments.apps.api.answers import Ping as Ping
from experiments.apps.api.graphs import graph as graph
from experiments.apps.api.labs import Lab as Lab
from experiments.apps.api.servers import Capture as Capture
from experiments.apps.api.servers import Program as Program
from experiments.apps.api.servers import Server as Server
from experiments.apps.api.traffic import AllToAll as AllToAll
from experiments.apps.api.traffic import Burst as Burst
from experiments.apps.api.traffic import OneToAll as OneToAll
from experiments.apps.api.traffic import OneToOne as OneToOne
from experiments.apps.api.traffic import OneToSeveral as OneToSeveral
from experiments.apps.api.traffic import Permutation as Permutation
from experiments.apps.api.traffic import SeveralToOne as SeveralToOne
from experiments.apps.api.traffic import Traffic as Traffic
from experiments.runs.trials.records import Run
from topos.base.errors import KernelError as KernelError
from topos.base.errors import LabEndedError as LabEndedError
from topos.base.errors import NotPermittedError as NotPermittedError
from topos.base.errors import PillarboxError as PillarboxError
from topos.base.errors import UnknownNameError as UnknownNameError
from topos.base.errors import UnsupportedError as UnsupportedError

lab = Lab

def load(run: Path | str) -> Run: ...
