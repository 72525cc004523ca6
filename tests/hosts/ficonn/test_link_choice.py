"""Available bandwidth of a FiConn server's two links, in worked values."""

import pytest

from pillarbox.hosts.ficonn.link_choice import better_link, free_bandwidth
from pillarbox.hosts.ficonn.rules import NOWHERE
from pillarbox.topos.ficonn import BACKUP, SWITCH


@pytest.mark.parametrize(
    ("own_port", "own_rate", "virtual", "free"),
    [
        (NOWHERE, 0.0, 0, (70.0, 40.0)),
        (BACKUP, 20.0, 0, (90.0, 40.0)),  # a flow does not compete with itself
        (SWITCH, 99.0, 0, (70.0, 100.0)),  # but frees no more than the link carries
        (NOWHERE, 0.0, 1, (70.0, 10.0)),  # the three flows have a mean rate of 30
        (NOWHERE, 0.0, 2, (70.0, 0.0)),
    ],
)
def test_unused_bandwidth(
    own_port: int, own_rate: float, virtual: int, free: tuple[float, float]
) -> None:
    assert free_bandwidth(30.0, 60.0, 100.0, 100.0, own_port, own_rate, 3, virtual) == free


def test_an_idle_server_has_no_mean_rate() -> None:
    assert free_bandwidth(0.0, 0.0, 100.0, 100.0, NOWHERE, 0.0, 0, 5) == (100.0, 100.0)


def test_links_within_the_equal_share_are_equal() -> None:
    assert [better_link(backup, 90.0, 0.9) for backup in (70.0, 81.0, 100.0, 101.0)] == [
        -1,
        0,
        0,
        1,
    ]
    assert [better_link(backup, 90.0, 1.0) for backup in (89.0, 90.0, 91.0)] == [-1, 0, 1]
