"""The table of processes in docs/security.md is the table in `pillarbox.hosts.linux.rights`."""

from __future__ import annotations

import re
from pathlib import Path

from pillarbox.hosts.linux.rights import ROLES, ProcessRights

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"


def row(name: str, role: ProcessRights) -> str:
    held = ", ".join(f"`{one}`" for one in role.capabilities) or "none"
    files = "yes" if role.files else "no"
    return f"| {name} | {role.does} | {role.user} | {held} | {files} |"


def test_each_role_is_listed_with_its_rights() -> None:
    lines = PAGE.read_text().splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("| lab |")) + 1
    wanted = [row(name, role) for name, role in ROLES.items()]
    assert lines[begin : begin + len(wanted)] == wanted


def test_each_test_and_module_that_is_named_exists() -> None:
    named = re.findall(r"`((?:tests|hosts|experiments)/[\w/.]+)`", PAGE.read_text())
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []
