"""DPillar's routing algorithms (Liao 2012): single-path and multi-path, without routing tables."""

from collections.abc import Callable

from pillarbox.hosts.base.algorithms import Algorithm
from pillarbox.hosts.base.network import Network
from pillarbox.hosts.base.path import Path
from pillarbox.hosts.dpillar import multipath, single_path
from pillarbox.hosts.dpillar.light_weight import RandomPath
from pillarbox.hosts.dpillar.paths import minimal_path, sp_path
from pillarbox.hosts.dpillar.rules import RULES
from pillarbox.hosts.dpillar.spraying import Spray
from pillarbox.hosts.dpillar.traffic_aware import TrafficAware
from pillarbox.hosts.dpillar.tunnel import Tunnelling
from pillarbox.hosts.dpillar.tunnel_choices import tunnels
from pillarbox.topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE, DPillar


def _paths(router: type[Tunnelling]) -> Callable[[DPillar, int, int], list[Path]]:
    return lambda dpillar, s, d: list(tunnels(dpillar, s, d, router.directions))


def _paths_with_reserves(
    router: type[multipath.WithReserves],
) -> Callable[[DPillar, int, int], list[Path]]:
    return lambda dpillar, s, d: [
        *tunnels(dpillar, s, d, router.directions),
        *router.reserve_paths(dpillar, s, d, router.directions),
    ]


NETWORK = Network(
    algorithms={
        "sp-cw": Algorithm(
            "DPillarSP, clockwise (Liao 2012, Algorithm 1)",
            lambda dpillar, s, d: sp_path(dpillar, s, d, CLOCKWISE),
            opposite="sp-ccw",
            router=single_path.Clockwise,
        ),
        "sp-ccw": Algorithm(
            "DPillarSP, counter-clockwise",
            lambda dpillar, s, d: sp_path(dpillar, s, d, COUNTER_CLOCKWISE),
            opposite="sp-ccw",
            router=single_path.CounterClockwise,
        ),
        "minimal": Algorithm(
            "a shortest path, computed from the addresses at each hop (not in the paper)",
            minimal_path,
            router=single_path.Minimal,
        ),
        "mp": Algorithm(
            "DPillarMP, clockwise (Liao 2012, Algorithms 2 and 3), paths probed (section 4.5.1)",
            path_set=_paths(multipath.FaultTolerant),
            opposite="mp-ccw",
            router=multipath.FaultTolerant,
        ),
        "mp-ccw": Algorithm(
            "DPillarMP, counter-clockwise",
            path_set=_paths(multipath.MultipathCounterClockwise),
            opposite="mp-ccw",
            router=multipath.MultipathCounterClockwise,
        ),
        "mp-both": Algorithm(
            "DPillarMP with the paths of both directions",
            path_set=_paths(multipath.BothWays),
            router=multipath.BothWays,
        ),
        "mp-any": Algorithm(
            "DPillarMP in both directions; with all paths failed, any pairing of s' and d'",
            path_set=_paths_with_reserves(multipath.AnyPairing),
            router=multipath.AnyPairing,
        ),
        "mp-far-side": Algorithm(
            "mp-any; with all paths failed, also to the destination's far port (a departure)",
            path_set=_paths_with_reserves(multipath.FarSide),
            router=multipath.FarSide,
        ),
        "mp-random": Algorithm(
            "DPillarMP, a random path for each try of a connection (section 4.5.1, light-weight)",
            path_set=_paths(RandomPath),
            router=RandomPath,
        ),
        "mp-aware": Algorithm(
            "DPillarMP, each flow on the path with the most available bandwidth (section 4.5.2)",
            path_set=_paths(TrafficAware),
            router=TrafficAware,
        ),
        "spray": Algorithm(
            "packet spraying: DPillarMP's paths of both directions, the packets of a flow in turn",
            path_set=_paths(Spray),
            router=Spray,
            sprays=True,
        ),
    },
    rules=RULES,
    several="mp-far-side",  # the other path sets lack disjoint paths by both ports for some pairs
)
