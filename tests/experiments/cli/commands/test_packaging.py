"""pillarbox packaging: section 5.2 of Guo 2009, and the counting against a plain loop."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pillarbox import topos
from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.models.comparison.racks import ContainerDimensions, pack_into_racks
from pillarbox.topos.base.errors import PillarboxError

CONTAINER = "bcube,8,3,servers=2048"


def run(*words: str):
    return CliRunner().invoke(cli, ["packaging", *words])


@pytest.fixture(scope="module")
def container():
    return pack_into_racks(topos.parse(CONTAINER), ContainerDimensions())


def test_racks_and_switches_of_section_5_2(container):
    assert (container.racks, container.racks_per_column, container.super_racks) == (32, 16, 4)
    assert container.switches_per_rack == (40, 40)
    assert container.units_used == 42


def test_wires_of_section_5_2(container):
    assert [wires.most_along_column for wires in container.levels] == [0, 0, 256, 512]
    assert container.sum_of_most == 768
    assert round(container.space_cm2) == 176
    # Level-2 wires are within a super-rack and level-3 wires between super-racks.
    assert [wires.between_super_racks > 0 for wires in container.levels] == [False] * 3 + [True]
    assert container.levels[3].inside_super_racks == 0


def test_departs_from_the_paper_768_wires_never_meet(container):
    # 16 p (8 - p) level-2 and 64 p level-3 wires pass the place behind rack p <= 8 of a column.
    assert container.most_at_one_place == max(16 * p * (8 - p) + 64 * p for p in range(9)) == 576
    assert [wires.most_at for wires in container.levels[2:]] == [4, 8]


@pytest.mark.parametrize("spec", ["bcube,4,2", "dcell,4,2", "dpillar,8,2", "ficonn,8,1"])
def test_every_cable_is_inside_a_rack_or_between(spec):
    topology = topos.parse(spec)
    packing = pack_into_racks(
        topology, ContainerDimensions(servers_per_rack=8, racks_per_super_rack=2)
    )
    inside = sum(wires.inside_racks for wires in packing.levels)
    assert inside + packing.between_racks == topology.cables
    assert packing.racks == -(-topology.servers // 8)


def test_one_column_counts_every_wire_that_passes():
    # bcube,4,1 in racks of one BCube_0: each level-1 switch stands in a rack of its own and has a
    # wire to every rack, so in the middle 4 x 2 wires pass.
    packing = pack_into_racks(
        topos.parse("bcube,4,1"), ContainerDimensions(servers_per_rack=4, rack_columns=1)
    )
    assert packing.switches_per_rack == (2, 2)
    level_1 = packing.levels[1]
    assert (level_1.inside_racks, level_1.inside_super_racks) == (4, 12)
    assert (level_1.most_along_column, level_1.most_at) == (8, 2)


def test_direct_cables_run_along_the_column():
    # dcell,2,1: three cells of two servers, all joined: two of the three cables pass each place.
    packing = pack_into_racks(
        topos.parse("dcell,2,1"), ContainerDimensions(servers_per_rack=2, rack_columns=1)
    )
    assert packing.levels[1].most_along_column == 2
    assert packing.levels[0].most_along_column == 0


def test_networks_whose_switches_join_switches_are_refused():
    with pytest.raises(PillarboxError, match="does not apply to fattree,4"):
        pack_into_racks(topos.parse("fattree,4"), ContainerDimensions())


def test_a_network_beyond_counting_is_refused():
    with pytest.raises(PillarboxError, match="handles up to"):
        pack_into_racks(topos.parse("dpillar,48,5"), ContainerDimensions())


def test_text_says_the_papers_figures_and_ours():
    shown = run(CONTAINER).output
    assert "at most 768 = 256 + 512" in shown
    assert "at most 576 at any one place" in shown
    assert "176 cm^2" in shown
    assert "42 of 44 (2 left)" in shown


def test_options_change_the_room():
    words = ("--servers-per-rack", "128", "--wire-diameter-cm", "1")
    shown = run(CONTAINER, *words).output
    assert "16 in 2 column(s) of 8" in shown
    assert "it does not fit" in shown
    found = json.loads(run(CONTAINER, *words, "--json").output)
    assert found["room"]["servers_per_rack"] == 128
    assert found["racks"] == 16


@pytest.mark.parametrize("words", [("--servers-per-rack", "0"), ("--wire-diameter-cm", "0")])
def test_a_room_without_room_is_refused(words):
    assert run(CONTAINER, *words).exit_code == 2
