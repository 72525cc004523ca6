"""What holds for all tests."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `root` where there is no root to run them."""
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root: sudo ./pillarbox test")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)
