"""A forwarder, one process on every server, asks about single servers: it never loads numpy."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox import topos

ROOT = Path(__file__).parents[2]
EXAMPLES = [spec for kind in topos.kinds() for spec in topos.network(kind).examples]
SCALAR_USE = """
import json, sys
from pillarbox import topos
for spec in json.loads(sys.argv[1]):
    topology = topos.parse(spec)
    for node in range(topology.nodes):
        for port in range(topology.ports_of(node)):
            topology.plug(node, port)
            if node < topology.servers:
                topology.peers(node, port)
            topology.mac(node, port), topology.interface(node, port)
    for server in range(topology.servers):
        assert topology.server(topology.address(server)) == server
        assert topology.server_of_ip(topology.ip(server)) == server
    sum(1 for cable in topology.links())
    topology.diameter_bound(), topology.bisection(), topology.disjoint_paths()
    topology.layout()
print(json.dumps([*sys.modules]))
"""
HEAVY = {
    "numpy",
    "networkx",
    "matplotlib",
    "pandas",
    "scipy",
    "click",
    "mininet",
    "pillarbox.experiments",
}


def loaded(code: str, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(json.loads(done.stdout))


def test_single_questions_to_every_network_load_nothing_heavy() -> None:
    assert not loaded(SCALAR_USE, json.dumps(EXAMPLES)) & HEAVY


@pytest.mark.parametrize("kind", topos.kinds())
def test_a_network_loads_no_other(kind: str) -> None:
    code = (
        "import json, sys; from pillarbox import topos; topos.network(sys.argv[1]); "
        "print(json.dumps([*sys.modules]))"
    )
    networks = {f"pillarbox.topos.{other}" for other in topos.kinds()}
    assert loaded(code, kind) & networks == {f"pillarbox.topos.{kind}"}
