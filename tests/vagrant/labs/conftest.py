"""Graders have patience here: right answers of a busy machine are right answers."""

from __future__ import annotations

import pytest

from pillarbox.experiments.apps.teaching import child


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only those tests hurry that say so."""
    monkeypatch.setattr(child, "DECISION_S", 30.0)
    monkeypatch.setattr(child, "PATIENCE_S", 300.0)
