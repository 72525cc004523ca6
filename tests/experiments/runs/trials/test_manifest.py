"""What a manifest tells of a machine, and that it is nothing secret."""

from __future__ import annotations

import json
import platform

from pillarbox import topos
from pillarbox.experiments.runs.trials.manifest import machine, network_facts, sysctls, versions


def test_machine_and_programs():
    told = machine()
    assert told["kernel"] == platform.release()
    assert told["processors"] >= 1 and told["memory_kib"] > 0
    assert "cubic" in told["congestion"]["available"]
    assert len(told["sysctls"]["net.ipv4.tcp_rmem"].split()) == 3
    assert not any("key" in name for name in told["sysctls"])
    programs = versions()
    assert programs["packages"]["pandas"]
    assert len(programs["commit"]) in (0, 40)
    json.dumps([told, programs], allow_nan=False)


def test_a_hash_of_the_cables_knows_networks_apart():
    specs = ("bcube,4,1", "bcube,4,1,servers=12", "dcell,4,1")
    hashes = [network_facts(topos.parse(spec))["cables_sha256"] for spec in specs]
    assert len(set(hashes)) == 3
    assert network_facts(topos.parse(specs[0]))["cables_sha256"] == hashes[0]


def test_sysctls_by_their_names():
    assert set(sysctls(["net/ipv4/tcp_s[a]ck", "net/no/such"])) == {"net.ipv4.tcp_sack"}
