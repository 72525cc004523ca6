"""Pytest plugin with the fixture ``pillarbox_lab``, a live network for a test.

    @pytest.mark.pillarbox("dcell,4,1", rate_mbit=100)
    def test_my_program(pillarbox_lab):
        pillarbox_lab.cut("0.3", "4.0")
        assert pillarbox_lab.path("0.0", "4.3").delivered

The mark has the arguments of `pillarbox.lab`. A mark on a class, or a module's ``pytestmark``,
applies to all its tests; each test has a separate lab, which ends with the test. Pytest loads the
plugin automatically.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pillarbox.hosts.linux.user_namespace import refusal

if TYPE_CHECKING:
    from pillarbox import Lab

MARK = "pillarbox"
MARKED = f"{MARK}(network, **options): the network of the fixture pillarbox_lab, as pillarbox.lab"


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark ``pillarbox`` with pytest."""
    config.addinivalue_line("markers", MARKED)


@pytest.fixture
def pillarbox_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Yield a lab of the network in the test's mark; the lab ends with the test."""
    mark = request.node.get_closest_marker(MARK)
    if mark is None or not mark.args:
        pytest.fail('name a network: @pytest.mark.pillarbox("dcell,4,1")', pytrace=False)
    if refused := refusal():
        pytest.skip(f"a lab needs root: run pytest with sudo ({refused})")
    import pillarbox

    with pillarbox.lab(*mark.args, **mark.kwargs) as lab:
        yield lab
