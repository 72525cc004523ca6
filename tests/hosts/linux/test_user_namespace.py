"""User namespaces: their ID maps, the sysctls that forbid them, and the rights inside."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from pillarbox.hosts.base import file_ownership
from pillarbox.hosts.linux import user_namespace
from pillarbox.hosts.linux.user_namespace import Setting
from tests.experiments.users import as_ordinary_user

RANGES = [(0, 1000, 1), (1, 100_000, 65_536)]


@pytest.mark.parametrize(
    ("setting", "forbids"),
    [
        (Setting("kernel.ostype", "Linux", ""), True),
        (Setting("kernel.ostype", "Another", ""), False),
        (Setting("kernel.no_such_setting", "1", ""), False),
    ],
)
def test_the_setting_that_forbids_user_namespaces_is_found(
    setting: Setting, forbids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_namespace, "SETTINGS", [setting])
    assert user_namespace.forbidding_setting() == (setting if forbids else None)


def test_users_inside_are_those_of_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_namespace, "_id_ranges", lambda: RANGES)
    found = [user_namespace.has_user(user) for user in (0, 1, 65_536, 65_537)]
    assert found == [True, True, True, False]


@pytest.mark.parametrize(("inside", "outside"), [(0, 1000), (1, 100_000), (70_000, 70_000)])
def test_a_user_inside_is_another_outside(
    inside: int, outside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_namespace, "_id_ranges", lambda: RANGES)
    monkeypatch.setattr(user_namespace.os, "geteuid", lambda: inside)
    assert user_namespace.outside_user() == outside


def test_only_the_users_own_subordinate_ids_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_namespace.os, "getuid", lambda: 4_000_000)  # a user without a name
    file = tmp_path / "subuid"
    assert list(user_namespace._subordinate_ranges(file)) == []
    file.write_text("root:1:2\n4000000:100000:65536\nbad line\n4000000:x:1\n")
    assert list(user_namespace._subordinate_ranges(file)) == [(100_000, 65_536)]


RIGHTS_INSIDE = """
from pillarbox.hosts.linux import user_namespace
from pillarbox.hosts.linux.calls import in_new_namespace
from pillarbox.hosts.base.file_ownership import is_machine_root
from pillarbox.experiments.base.files import runtime_folder
import os

def text():
    with in_new_namespace():
        return f"{os.geteuid()} {user_namespace.outside_user()} {runtime_folder()}"

print(os.geteuid(), is_machine_root(), runtime_folder())
print(user_namespace.text_inside(text))
try:
    open("/etc/shadow")
except PermissionError:
    print("no file of others")
"""


def test_inside_the_user_is_root_of_the_namespaces_alone() -> None:
    done = as_ordinary_user("-c", RIGHTS_INSIDE)
    outside, inside, files = done.stdout.splitlines()
    user, is_root, folder = outside.split()
    assert is_root == "False" and user != "0"
    assert inside.split() == ["0", user, folder] and user in folder
    assert files == "no file of others"


@pytest.mark.parametrize(
    ("user", "owner", "is_root"), [(0, 0, True), (0, 1, True), (0, 65534, False), (1, 0, False)]
)
def test_root_of_a_user_namespace_is_not_the_machines(
    user: int, owner: int, is_root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root directory of another user, which exists, is the machine's own mistake."""
    monkeypatch.setattr(file_ownership.os, "geteuid", lambda: user)
    monkeypatch.setattr(file_ownership.os, "lstat", lambda _: SimpleNamespace(st_uid=owner))
    assert file_ownership.is_machine_root() is is_root


SEALED = """
from pathlib import Path
from pillarbox.hosts.linux import user_namespace
from pillarbox.experiments.apps.teaching.child import ChildKeeper

def text():
    with ChildKeeper("x = 1", [], ["bcube,2,1"]) as keeper:
        child = keeper.child()
        return Path(f"/proc/{child._pid}/status").read_text() + repr(keeper.unsealed)

print(user_namespace.text_inside(text))
"""


def test_a_sealed_process_has_no_capability_inside() -> None:
    done = as_ordinary_user("-c", SEALED)
    held = re.findall(r"^Cap(?:Eff|Prm|Inh|Amb):\s*(\d+)$", done.stdout, re.MULTILINE)
    assert held == ["0" * 16] * 4, done.stderr
    assert done.stdout.endswith("[]\n")
