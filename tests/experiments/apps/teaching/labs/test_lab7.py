"""What is right in lab 7: the papers' own numbers, and what the sheet tells to work out."""

import pytest

from pillarbox import topos
from pillarbox.experiments.apps.teaching.labs import lab7
from pillarbox.experiments.models.fluid.ideal import header_bytes

# Flows on the busiest cable; max-min fair rates, in cables' rates: by hand.
BY_HAND = {
    ("bcube,3,1", "bcube"): (6, 1 / 6, 1 / 6, 12),
    ("bcube,4,1", "bcube"): (12, 1 / 12, 1 / 12, 20),
    ("dcell,3,1", "dcell"): (14, 1 / 14, 1 - 8 / 14, 120 / 14 + 12 * 6 / 14),
    ("dcell,4,1", "dcell"): (27, 1 / 27, 1 - 15 / 27, 360 / 27 + 20 * 12 / 27),
    ("tree,3,3", ""): (18, 1 / 18, 1 / 3, 54 / 18 + 18 / 3),
    ("tree,3,4", ""): (27, 1 / 27, 1 / 3, 108 / 27 + 24 / 3),
    ("tree,4,4", ""): (48, 1 / 48, 1 / 4, 192 / 48 + 48 / 4),
    ("tree,4,5", ""): (64, 1 / 64, 1 / 4, 320 / 64 + 60 / 4),
}


@pytest.mark.parametrize(("spec", "routing"), BY_HAND)
def test_fluid_is_what_hands_work_out(spec: str, routing: str) -> None:
    found = lab7.fluid_model(spec, routing)
    assert found[:4] == pytest.approx(BY_HAND[spec, routing])
    # The formula of the sheet, well within what counts as right; without headers it is not.
    header = header_bytes(topos.parse(spec), routing)
    by_hand = found.busiest_flows * (1514 + header) / 1448
    assert found.cable_bits == pytest.approx(by_hand, rel=lab7.CLOSE / 4)
    assert abs(found.cable_bits - found.busiest_flows) > 2 * lab7.CLOSE * found.cable_bits


def test_every_network_of_a_sheet_was_worked_out() -> None:
    drawn = {(own.network, own.routing) for own in lab7.NETWORK_PAIRS} | {
        (own.tree, "") for own in lab7.NETWORK_PAIRS
    }
    assert drawn == set(BY_HAND)
    for own in lab7.NETWORK_PAIRS:
        assert topos.parse(own.network).servers == topos.parse(own.tree).servers
