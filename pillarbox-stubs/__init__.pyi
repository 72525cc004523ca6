# Types of pillarbox.py for type checkers and editors: a single module cannot contain py.typed.
from pathlib import Path

from experiments.api.answers import CaptureFile as CaptureFile
from experiments.api.answers import Change as Change
from experiments.api.answers import Iperf as Iperf
from experiments.api.answers import Link as Link
from experiments.api.answers import NetworkSize as NetworkSize
from experiments.api.answers import PacketPath as PacketPath
from experiments.api.answers import Ping as Ping
from experiments.api.labs import Lab as Lab
from experiments.api.servers import Capture as Capture
from experiments.api.servers import Program as Program
from experiments.api.servers import Server as Server
from experiments.api.traffic import AllToAll as AllToAll
from experiments.api.traffic import Burst as Burst
from experiments.api.traffic import OneToAll as OneToAll
from experiments.api.traffic import OneToOne as OneToOne
from experiments.api.traffic import OneToSeveral as OneToSeveral
from experiments.api.traffic import Permutation as Permutation
from experiments.api.traffic import SeveralToOne as SeveralToOne
from experiments.api.traffic import Traffic as Traffic
from experiments.trials.runs.records import Run
from topos.base.errors import KernelError as KernelError
from topos.base.errors import LabEndedError as LabEndedError
from topos.base.errors import NotPermittedError as NotPermittedError
from topos.base.errors import PillarboxError as PillarboxError
from topos.base.errors import UnknownNameError as UnknownNameError
from topos.base.errors import UnsupportedError as UnsupportedError

lab = Lab

def load(run: Path | str) -> Run: ...
