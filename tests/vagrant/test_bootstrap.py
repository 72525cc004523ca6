"""The bootstrap of a machine: provisioning, updates, and the place of the environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.vagrant.made_up_machine import (
    CHECKOUT,
    FAKE_APT,
    LOCK,
    SCRIPTS,
    TOOLS,
    Machine,
    machine_in,
)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return machine_in(tmp_path)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_posix_shell(name: str) -> None:
    subprocess.run(["sh", "-n", CHECKOUT / name], check=True)
    assert (CHECKOUT / name).read_text().startswith("#!/bin/sh\n")
    assert os.access(CHECKOUT / name, os.X_OK)


def test_ci_calls_the_command_that_users_call() -> None:
    subprocess.run(["bash", "-n", CHECKOUT / ".ci/run"], check=True)
    assert "exec sudo PILLARBOX_TESTS=1 ./pillarbox test\n" in (CHECKOUT / ".ci/run").read_text()


def test_first_run_provisions_and_keeps_standard_output_for_the_command(machine: Machine) -> None:
    ran = machine.pillarbox("topo", "bcube,4,1", "two words")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{machine.folder}\n<topo><bcube,4,1><two words>"
    assert machine.stamp[1] == str(machine.checkout)
    assert machine.pip_runs == 1


def test_working_directory_stays_the_users_through_links(machine: Machine) -> None:
    elsewhere = machine.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "first").symlink_to(machine.checkout / "pillarbox")
    (elsewhere / "second").symlink_to("first")
    ran = machine.run("./second", "topo", cwd=elsewhere)
    assert ran.stdout == f"{elsewhere}\n<topo>"


def test_second_run_changes_nothing(machine: Machine) -> None:
    machine.provision()
    before = machine.everything()
    assert machine.provision().stdout == ""
    machine.pillarbox("topo")
    assert machine.everything() == before


def test_what_is_ready_needs_few_programs_to_start(machine: Machine) -> None:
    machine.provision()
    for tool in set(TOOLS) - {"id"}:  # which is another's already
        count = f'#!/bin/sh\necho {tool} >>"$MACHINE/ran"\nexec {shutil.which(tool)} "$@"\n'
        machine.program(tool, count)
    assert machine.pillarbox("topo").returncode == 0
    ran = (machine.folder / "ran").read_text().split()
    assert 0 < len(ran) < 20, ran  # a millisecond each; to look whether Python works takes 100
    assert machine.pip_runs == 1


def test_killed_run_is_begun_again_and_parts_are_kept(machine: Machine) -> None:
    machine.settings["PILLARBOX_PARTS"] = "simulator"
    machine.provision()
    with (machine.checkout / "setup.py").open("a") as setup:
        setup.write("# one more\n")
    machine.settings.clear()
    machine.settings["PIP_KILLS"] = "yes"
    assert machine.provision().returncode == -9
    assert machine.stamp == ["unfinished"]
    half_made = machine.venv / "lib" / "half-made"
    half_made.touch()
    machine.settings.clear()
    assert machine.provision().returncode == 0
    assert machine.stamp[1] == str(machine.checkout)
    assert not half_made.exists()
    assert (machine.venv / "pillarbox.parts").read_text().split() == ["lab", "simulator"]


def test_two_at_once_provision_once(machine: Machine) -> None:
    script = machine.checkout / "vagrant/provision.sh"
    both = [machine.start("sh", script) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=150)
        assert process.returncode == 0, err
    assert machine.pip_runs == 1


def test_changed_requirements_update_the_environment(machine: Machine) -> None:
    machine.provision()
    kept = machine.venv / "lib" / "kept"
    kept.touch()
    with (machine.checkout / "setup.py").open("a") as setup:
        setup.write("# one more\n")
    assert machine.provision().returncode == 0
    assert machine.pip_runs == 2
    assert kept.exists()


def test_packages_are_those_of_the_lock_by_their_hashes(machine: Machine) -> None:
    machine.settings["PYTHON_VERSION"] = "3.11"
    assert machine.provision().returncode == 0
    building, rest = (machine.folder / "pip-upgrades").read_text().splitlines()
    assert "--require-hashes -r /" in building and building.endswith("/building.lock")
    assert (machine.folder / "building").read_text() == "pip==26.3 --hash=sha256:2\n"
    assert "--require-hashes -r /" in rest and rest.endswith("/parts.lock")
    assert (machine.folder / "pip-last").read_text().endswith("--no-deps -e .\n")
    (machine.checkout / "vagrant/requirements.lock").write_text(LOCK.replace("26.3", "26.4"))
    assert machine.provision().returncode == 0
    assert machine.pip_runs == 2


@pytest.mark.parametrize(
    ("version", "computer"), [("3.14", "x86_64"), ("3.1", "x86_64"), ("3.11", "riscv64")]
)
def test_what_the_lock_is_not_for_is_installed_without_it(
    machine: Machine, version: str, computer: str
) -> None:
    machine.settings["PYTHON_VERSION"] = version
    machine.program("uname", f"#!/bin/sh\necho {computer}\n")
    ran = machine.provision()
    assert "requirements.lock is not for this Python and machine" in ran.stdout
    assert "hashes" not in (machine.folder / "pip-upgrades").read_text()
    assert (machine.folder / "pip-last").read_text().endswith("-e .[lab]\n")


def test_parts_are_installed_when_they_are_asked_for_and_kept(machine: Machine) -> None:
    machine.settings["PYTHON_VERSION"] = "3.11"

    def installed() -> list[str]:
        ran = machine.provision()
        assert ran.returncode == 0, ran.stderr
        lines = (machine.folder / "parts").read_text().splitlines()
        return [line.partition("=")[0] for line in lines]

    assert installed() == ["click", "pip", "pip-tools"]
    machine.settings["PILLARBOX_PARTS"] = "simulator"
    assert installed() == ["click", "pip", "pip-tools", "numba"]
    assert (installed(), machine.pip_runs) == (["click", "pip", "pip-tools", "numba"], 2)
    del machine.settings["PILLARBOX_PARTS"]
    with (machine.checkout / "setup.py").open("a") as setup:
        setup.write("# one more\n")
    assert installed() == ["click", "pip", "pip-tools", "numba"]
    machine.settings["PILLARBOX_TESTS"] = "1"
    assert installed() == ["click", "pip", "pip-tools", "numba", "mypy"]
    del machine.settings["PILLARBOX_TESTS"]
    machine.settings["PILLARBOX_PARTS"] = "simulator machines"  # which are in `tests`
    assert (machine.pillarbox("topo").returncode, machine.pip_runs) == (0, 6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "  topo           Describe a network: counts, bounds, addresses.\n"),
        (["--help"], "\nUsage: pillarbox [OPTIONS] COMMAND [ARGS]...\n"),
        (["capture", "-h"], "\npillarbox capture [OPTIONS] [--lab N] [--json] [ADDR[:PORT]]...\n"),
        (["setup", "man", "--help"], "\npillarbox setup man [OPTIONS]\n"),
        (["heal", "-h"], "\npillarbox heal A-B | SWITCH | all\n\nRepair a cable"),
    ],
)
def test_help_comes_before_anything_is_installed(
    machine: Machine, words: list[str], said: str
) -> None:
    (machine.checkout / "docs").mkdir()
    shutil.copy(CHECKOUT / "docs/commands.md", machine.checkout / "docs")
    ran = machine.pillarbox(*words)
    assert (ran.returncode, ran.stderr, machine.pip_runs) == (0, "", 0)
    assert said in "\n" + ran.stdout
    assert not machine.venv.exists()


def test_help_of_a_program_on_a_server_is_the_programs(machine: Machine) -> None:
    assert machine.pillarbox("exec", "0.0", "ip", "--help").stdout.endswith("<ip><--help>")


@pytest.mark.parametrize("wish", ["PILLARBOX_OPENFLOW", "PILLARBOX_TESTS"])
def test_openflow_is_installed_once_and_only_where_it_is_asked_for(
    machine: Machine, wish: str
) -> None:
    def kits() -> set[str]:
        return {path.name for path in machine.venv.glob("lib/*/site-packages/*")}

    machine.provision()
    assert (machine.pip_runs, kits()) == (1, set())
    machine.settings[wish] = "1"
    assert machine.provision().returncode == 0
    assert machine.provision().returncode == 0
    runs = 4 if wish == "PILLARBOX_TESTS" else 3  # which brings a part of the lock as well
    assert (machine.pip_runs, kits()) == (runs, {"os_ken", "ryu"})
    del machine.settings[wish]
    assert machine.provision().returncode == 0
    assert machine.pip_runs == runs


def test_environment_without_kits_is_whole(machine: Machine) -> None:
    machine.provision()
    machine.settings |= {"PILLARBOX_OPENFLOW": "1", "PIP_SAYS": "No matching distribution for ryu"}
    assert machine.provision().returncode == 1
    del machine.settings["PILLARBOX_OPENFLOW"]
    assert machine.provision().returncode == 0
    assert machine.pip_runs == 2


def test_openflow_brings_debians_open_vswitch(machine: Machine) -> None:
    machine.become_root()
    machine.program("apt-get", FAKE_APT)
    machine.program(
        "dpkg-query", '#!/bin/sh\ncase "$*" in *vswitch*) exit 1 ;; esac\necho installed\n'
    )
    machine.settings["PILLARBOX_OPENFLOW"] = "1"
    assert "installing Debian's openvswitch-switch (" in machine.provision().stdout


@pytest.mark.parametrize("wish", ["PILLARBOX_MPI", "PILLARBOX_TESTS"])
def test_mpi_brings_debians_open_mpi(machine: Machine, wish: str) -> None:
    machine.become_root()
    machine.program("apt-get", FAKE_APT)
    machine.program("dpkg-query", '#!/bin/sh\ncase "$*" in *mpi*) exit 1 ;; esac\necho installed\n')
    machine.settings[wish] = "1"
    machine.settings["PILLARBOX_DIST_PACKAGES"] = str(machine.folder / "nothing")
    told = machine.provision().stdout
    assert "installing Debian's openmpi-bin python3-mpi4py (" in told


@pytest.mark.parametrize("wish", ["PILLARBOX_BROWSER", "PILLARBOX_TESTS"])
def test_tests_bring_chromium_where_it_is_a_package(machine: Machine, wish: str) -> None:
    machine.become_root()
    machine.program("apt-get", FAKE_APT)
    machine.program(
        "dpkg-query", '#!/bin/sh\ncase "$*" in *chromium*) exit 1 ;; esac\necho installed\n'
    )
    machine.settings[wish] = "1"
    machine.settings["PILLARBOX_DIST_PACKAGES"] = str(machine.folder / "nothing")
    is_debian = "\nID=debian\n" in "\n" + Path("/etc/os-release").read_text()
    wanted = wish == "PILLARBOX_BROWSER" or is_debian
    assert ("installing Debian's chromium (" in machine.provision().stdout) is wanted


def test_failed_update_leaves_the_environment_as_it_was(machine: Machine) -> None:
    machine.provision()
    before = machine.stamp
    with (machine.checkout / "setup.py").open("a") as setup:
        setup.write("# one more\n")
    machine.settings["PIP_SAYS"] = "Temporary failure in name resolution"
    assert machine.provision().returncode == 1
    assert machine.stamp == before


def test_moved_checkout_gets_an_environment_of_its_own(machine: Machine) -> None:
    machine.provision()
    moved = machine.checkout.rename(machine.folder / "moved")
    assert machine.run(moved / "pillarbox", "topo").returncode == 0
    stamp = (moved / ".venv" / "pillarbox.stamp").read_text().splitlines()
    assert stamp[1] == str(moved)


def test_mininet_that_comes_later_is_linked(machine: Machine) -> None:
    machine.provision()
    mininet = machine.folder / "dist-packages" / "mininet"
    mininet.mkdir()
    assert machine.provision().returncode == 0
    link = machine.venv / "lib/python3.11/site-packages/mininet"
    assert link.resolve() == mininet
    assert machine.pip_runs == 1


def test_programs_are_compiled_where_there_is_a_compiler(machine: Machine) -> None:
    machine.provision()
    assert not (machine.folder / "compiled").exists()
    machine.program("clang", "#!/bin/sh\n")
    shutil.rmtree(machine.venv)
    assert machine.provision().returncode == 0
    assert (machine.folder / "compiled").read_text() == "compiled\n"


def test_programs_that_do_not_compile_are_told_and_done_without(machine: Machine) -> None:
    machine.program("clang", "#!/bin/sh\n")
    machine.settings["CLANG_FAILS"] = "yes"
    ran = machine.provision()
    assert ran.returncode == 0
    assert "pillarbox: the eBPF programs cannot be compiled, so that" in ran.stdout
    assert machine.provision().stdout == ""


def test_place_can_be_chosen(machine: Machine) -> None:
    machine.settings["PILLARBOX_VENV"] = "chosen/venv"
    assert machine.pillarbox("topo").returncode == 0
    assert (machine.folder / "chosen/venv/pillarbox.stamp").exists()
    assert not machine.venv.exists()


def test_folder_without_links_is_left_alone(machine: Machine) -> None:
    link = shutil.which("ln")
    machine.program("ln", f'#!/bin/sh\ncase "$*" in *probe*) exit 1 ;; esac\nexec {link} "$@"\n')
    assert machine.pillarbox("topo").returncode == 0
    assert (machine.folder / "home/.local/share/pillarbox/venv/pillarbox.stamp").exists()
    assert not machine.venv.exists()


def put_on(machine: Machine, kind_of_file_system: str) -> None:
    """Have the checkout lie on another kind of file system."""
    stat = shutil.which("stat")
    says = f'[ "$1" != -f ] || {{ echo {kind_of_file_system}; exit; }}'
    machine.program("stat", f'#!/bin/sh\n{says}\nexec {stat} "$@"\n')


@pytest.mark.parametrize("kind", ["vboxsf", "prl_fs", "v9fs", "fuseblk"])
def test_folder_of_another_machine_keeps_that_ones_environment(machine: Machine, kind: str) -> None:
    (machine.checkout / ".venv").mkdir()
    (machine.checkout / ".venv" / "pillarbox.stamp").write_text("/usr/bin/python3\n/there\n")
    put_on(machine, kind)
    assert machine.pillarbox("topo").returncode == 0
    assert machine.stamp == ["/usr/bin/python3", "/there"]
    assert (machine.folder / "home/.local/share/pillarbox/venv/pillarbox.stamp").exists()


def test_environment_elsewhere_is_updated_where_it_is(machine: Machine) -> None:
    machine.settings["PILLARBOX_VENV"] = str(machine.folder / "home/.local/share/pillarbox/venv")
    machine.provision()
    machine.settings.clear()
    with (machine.checkout / "setup.py").open("a") as setup:
        setup.write("# one more\n")
    assert machine.pillarbox("topo").returncode == 0
    assert machine.pip_runs == 2
    assert not machine.venv.exists()
