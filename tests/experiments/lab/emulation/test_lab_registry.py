"""Which labs are alive, and what dead ones have left."""

from pathlib import Path

import pytest

from pillarbox.experiments.lab.emulation import lab_registry


@pytest.mark.root
def test_dead_labs_folders_are_removed_and_no_living_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_registry, "LABS", tmp_path)
    places = [lab_registry.create_lab_folder() for _ in range(3)]
    (places[1].folder / "events.jsonl").touch()
    places[1].lock.close()  # it died
    assert lab_registry.remove_dead(remove=False) == [2]
    assert lab_registry.living_labs() == [1, 3]
    assert lab_registry.remove_dead() == [2]
    assert [folder.name for folder in sorted(tmp_path.iterdir())] == ["1", "3"]
    assert lab_registry.remove_dead() == []
