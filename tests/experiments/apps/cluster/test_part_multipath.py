"""Several machines: each has the library of `exec --mptcp`."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from pillarbox.experiments.apps.cluster import part
from pillarbox.experiments.lab.emulation.local_fabric import LocalFabric
from pillarbox.experiments.lab.linux import mptcp
from pillarbox.hosts.live.settings import LabSettings


@pytest.mark.parametrize("transport", ["tcp", "mptcp"])
def test_a_part_compiles_the_library_of_programs(
    transport: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if mptcp.lack_for_programs():
        pytest.skip(mptcp.lack_for_programs())
    monkeypatch.setattr(mptcp, "BUILD", tmp_path / "build")
    monkeypatch.setattr(LocalFabric, "attach", lambda *_: None)
    monkeypatch.setattr(part, "PartTrial", MagicMock())
    fabric = part.PartFabric(
        (), MagicMock(), crossing="", tell=lambda _: None, answering=MagicMock()
    )
    fabric.net = MagicMock()
    fabric.attach(MagicMock(settings=LabSettings(transport=transport)))
    assert len([*tmp_path.rglob("*.so")]) == (transport == "mptcp")
