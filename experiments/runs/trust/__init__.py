"""Validity of a trial's results: monitoring of the machine during a trial, and the verdict.

Runners use `watch`, which starts the process `watcher`. It samples the queues of all ports
(`queues`), measures delays with a canary (`canary`) and reads kernel counters (`machine`,
`strays`). The results are `readings`, which `verdict` judges. docs/trust.md is the users' guide.
"""

from pillarbox.experiments.runs.trust.readings import Readings
from pillarbox.experiments.runs.trust.verdict import Verdict, judge
from pillarbox.experiments.runs.trust.watch import Watch

__all__ = ["Readings", "Verdict", "Watch", "judge"]
