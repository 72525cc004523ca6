"""Errors of the bootstrap: each is one sentence with a command that repairs it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.vagrant.made_up_machine import FAKE_APT, FAKE_PYTHON, Machine, machine_in


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return machine_in(tmp_path)


def assert_one_sentence(ran: subprocess.CompletedProcess[str], log: Path, *words: str) -> None:
    assert ran.returncode not in (0, None)
    form = rf"pillarbox: [^\n]+; [^\n]*'[^\n]+'[^\n]* \(full log: {re.escape(str(log))}\)\.\n"
    assert re.fullmatch(form, ran.stderr), ran.stderr
    assert log.exists()
    for word in words:
        assert word in ran.stderr


@pytest.mark.parametrize(
    ("setting", "said", "words"),
    [
        ("PYTHON_OLD", "yes", ["Python 3.10", "PILLARBOX_PYTHON="]),
        ("VENV_MISSING", "yes", ["sudo apt-get install python3-venv"]),
        ("PIP_SAYS", "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed", ["PIP_CERT="]),
        ("PIP_SAYS", "NewConnectionError: Temporary failure", ["reach", "global.index-url"]),
        ("PIP_SAYS", "ERROR: No matching distribution found for numpy", ["index", "grep ERROR"]),
        ("PIP_SAYS", "OSError: [Errno 28] No space left on device", ["full", "df -h"]),
        ("PIP_SAYS", "something never seen before", ["could not install", "grep"]),
        ("PILLARBOX_PYTHON", "/no/such/python3", ["/no/such/python3", "apt-get install"]),
        ("PILLARBOX_VENV", "/dev/null/venv", ["/dev/null", "PILLARBOX_VENV="]),
    ],
)
def test_failure_is_one_sentence(
    machine: Machine, setting: str, said: str, words: list[str]
) -> None:
    machine.settings[setting] = said
    assert_one_sentence(machine.provision(), machine.folder / "log", *words)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("E: Unable to locate package mininet", ["mininet", "add-apt-repository -y universe"]),
        ("Temporary failure resolving the mirror", ["cannot reach", "sudo apt-get update"]),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend", ["busy", "ps -C"]),
        ("E: You don't have enough free space: No space left on device", ["full"]),
        ("E: something never seen before", ["sudo apt-get install --fix-broken mininet"]),
    ],
)
def test_failure_of_apt_is_one_sentence(machine: Machine, said: str, words: list[str]) -> None:
    machine.become_root()
    machine.program("apt-get", FAKE_APT)
    machine.program(
        "dpkg-query", '#!/bin/sh\ncase "$*" in *mininet) exit 1 ;; esac\necho installed\n'
    )
    machine.settings["APT_SAYS"] = said
    assert_one_sentence(machine.provision(), machine.folder / "log", *words)
    assert not machine.venv.exists()


def test_packages_without_their_programs_are_told(machine: Machine) -> None:
    machine.become_root()
    machine.program("apt-get", FAKE_APT)
    machine.program("dpkg-query", "#!/bin/sh\necho installed\n")
    words = ["there is no", "tshark", "sudo apt-get install --reinstall bridge-utils"]
    assert_one_sentence(machine.provision(), machine.folder / "log", *words)


def test_other_distributions_are_told_so(machine: Machine) -> None:
    machine.become_root()
    assert_one_sentence(machine.provision(), machine.folder / "log", "not Debian", "vagrant up")


def test_foreign_environment_is_not_touched(machine: Machine) -> None:
    machine.venv.mkdir()
    (machine.venv / "mine").touch()
    assert_one_sentence(machine.provision(), machine.folder / "log", "is not Pillarbox's", "mv ")
    assert (machine.venv / "mine").exists()


def test_interruption_is_one_sentence(machine: Machine) -> None:
    text = FAKE_PYTHON.replace("kill -9 0", "trap '' TERM; kill -TERM 0")
    machine.program("python3", text)
    machine.settings["PIP_KILLS"] = "yes"
    assert_one_sentence(machine.provision(), machine.folder / "log", "interrupted", "goes on")
    assert machine.stamp == ["unfinished"]
