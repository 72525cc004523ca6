"""Worker process of a trial over several machines.

See `pillarbox.experiments.runs.trials.trial_worker`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pillarbox.experiments.runs.trials.order import TrialMeasurements, TrialOrder
from pillarbox.experiments.runs.trials.trial_worker import main, measured_in


def run_trial(order: TrialOrder, connection: Any, folder: Path) -> TrialMeasurements:
    """Run a trial on a lab over several machines; return its measurements."""
    from pillarbox.experiments.apps.cluster.cluster_fabric import ClusterFabric
    from pillarbox.experiments.apps.cluster.cluster_registry import NamedCluster
    from pillarbox.experiments.lab.emulation.lab import Lab

    trial = order.trial
    connection.send(("phase", "starting machines"))
    machines, cluster = trial.system.machines, trial.system.cluster
    ground = NamedCluster(cluster, machines) if cluster else None
    fabric = ClusterFabric(machines, ground=ground)
    with Lab(order.topology, trial.system, folder, trial.seed, fabric=fabric) as lab:
        connection.send(("phase", "servers find their neighbours"))
        lab.wait_converged()
        return measured_in(lab, order, connection.send)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), run_trial)
