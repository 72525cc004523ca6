"""DPillar's routing (Liao 2012): one path or many, round the pillar, without any table."""

from hosts.base.algorithms import Algorithm
from hosts.dpillar.paths import mp_paths, sp_path
from hosts.dpillar.single import Clockwise, CounterClockwise
from topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE

ALGORITHMS = {
    "sp-cw": Algorithm(
        "DPillarSP, clockwise (Liao 2012, Algorithm 1)",
        lambda dpillar, s, d: sp_path(dpillar, s, d, CLOCKWISE),
        opposite="sp-ccw",
        router=Clockwise,
    ),
    "sp-ccw": Algorithm(
        "DPillarSP, counter-clockwise",
        lambda dpillar, s, d: sp_path(dpillar, s, d, COUNTER_CLOCKWISE),
        opposite="sp-ccw",
        router=CounterClockwise,
    ),
    "mp": Algorithm(
        "DPillarMP, clockwise (Liao 2012, Algorithm 2)",
        path_set=lambda dpillar, s, d: mp_paths(dpillar, s, d, CLOCKWISE),
        opposite="mp-ccw",
    ),
    "mp-ccw": Algorithm(
        "DPillarMP, counter-clockwise",
        path_set=lambda dpillar, s, d: mp_paths(dpillar, s, d, COUNTER_CLOCKWISE),
        opposite="mp-ccw",
    ),
}
