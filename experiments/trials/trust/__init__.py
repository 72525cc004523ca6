"""Whether a result can be trusted: what is watched while a trial runs, and the verdict.

`watch` is what a runner uses; it starts `watcher`, a process that looks at the ports' queues
(`queues`), listens to a canary (`canary`) and reads what the kernel counts (`machine`, `strays`).
What it saw are `readings`; `verdict` judges them. docs/trust.md explains it to users.
"""

from experiments.trials.trust.readings import Readings
from experiments.trials.trust.verdict import Verdict, judge
from experiments.trials.trust.watch import Watch

__all__ = ["Readings", "Verdict", "Watch", "judge"]
