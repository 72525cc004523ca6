"""`pillarbox.hosts.linux.rights`: what a process can no longer do once it has taken a role."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pillarbox.hosts.linux import rights

pytestmark = pytest.mark.root


def in_child(act: Callable[[], object]) -> str:
    """Return the name of the exception that a function raises in a forked child, or "done"."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            act()
            said = "done"
        except BaseException as error:  # noqa: BLE001 - its name is the result
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def role_command_prefix(role: str, act: Callable[[], object]) -> str:
    def taken() -> None:
        rights.take_role(role)
        act()

    return in_child(taken)


def masks(text: str) -> dict[str, int]:
    lines = (line.partition(":") for line in text.splitlines())
    return {key[3:]: int(value, 16) for key, _, value in lines if key.startswith("Cap")}


def test_each_role_keeps_what_the_table_lists_and_no_more(tmp_path: Path) -> None:
    for role, listed in rights.ROLES.items():
        file = tmp_path / role
        opened = os.open(file, os.O_WRONLY | os.O_CREAT)

        def show(opened: int = opened) -> None:
            os.write(opened, Path("/proc/self/status").read_bytes())

        assert role_command_prefix(role, show) == "done"
        found, before = masks(file.read_text()), masks(Path("/proc/self/status").read_text())
        most = sum(1 << rights.CAPABILITIES.index(name) for name in listed.capabilities)
        assert found["Prm"] == found["Eff"] == most & before["Prm"]
        assert found["Bnd"] == most & before["Bnd"]
        assert found["Inh"] == found["Amb"] == 0
        assert "NoNewPrivs:\t1" in file.read_text()
        assert file.read_text().startswith(f"Name:\tpb-{role}"[: len("Name:\t") + 15])


def test_a_role_without_files_creates_writes_and_executes_nothing(tmp_path: Path) -> None:
    if rights.ruleset_for_reading() is None:
        pytest.skip("this kernel has no Landlock")
    there = tmp_path / "there"
    there.write_text("")
    tries: dict[str, Callable[[], object]] = {
        "create": (tmp_path / "new").touch,
        "write": lambda: there.write_text("changed"),
        "remove": there.unlink,
        "read what is no code": there.read_text,
        "write a setting": lambda: Path("/proc/sys/net/ipv4/ip_forward").write_text("1"),
        "execute": lambda: os.execv("/bin/true", ["true"]),
    }
    for name, act in tries.items():
        assert role_command_prefix("watcher", act) == "PermissionError", name
    assert role_command_prefix("watcher", Path(os.__file__).read_text) == "done"
    assert there.exists() and not (tmp_path / "new").exists()


def test_a_role_reads_the_folders_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")

    def read() -> None:
        rights.take_role("generator", [tmp_path])
        (tmp_path / "log").read_text()

    assert in_child(read) == "done"


def test_a_command_started_as_a_role_has_no_other_capability() -> None:
    said = subprocess.run(
        [*rights.role_command_prefix("iperf3"), "cat", "/proc/self/status"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = masks(said)
    most = 1 << rights.CAPABILITIES.index("net_admin")
    assert found["Prm"] == found["Eff"] == found["Bnd"] == most
    assert "NoNewPrivs:\t1" in said


def test_capabilities_have_the_kernels_numbers() -> None:
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    assert len(rights.CAPABILITIES) >= last + 1 or last > 40
    header = Path("/usr/include/linux/capability.h")
    if header.exists():
        defined = {
            words[1].removeprefix("CAP_").lower(): int(words[2])
            for words in map(str.split, header.read_text().splitlines())
            if len(words) == 3 and words[0] == "#define" and words[2].isdecimal()
        }
        for number, name in enumerate(rights.CAPABILITIES):
            assert defined.get(name, number) == number


def test_taking_a_role_needs_no_root() -> None:
    def become_nobody() -> None:
        os.setgid(65534)
        os.setuid(65534)
        rights.take_role("watcher")

    assert in_child(become_nobody) == "done", sys.version
