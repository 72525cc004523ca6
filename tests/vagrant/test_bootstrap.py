"""The bootstrap, on a machine that is made up: its own PATH, its own apt-get, its own Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPTS = ["pillarbox", "vagrant/provision.sh", "vagrant/help.sh"]

# All that the scripts may ask of a machine without root, apart from the shell's builtins.
# fmt: off
TOOLS = [
    "awk", "cat", "cksum", "cp", "cut", "df", "dirname", "env", "find", "flock", "getent",
    "grep", "head", "id", "ln", "ls", "mkdir", "mktemp", "mv", "readlink", "rm", "setpriv",
    "sh", "sleep", "stat", "tail",
]
# fmt: on

FAKE_PYTHON = r"""#!/bin/sh
# Stands for /usr/bin/python3 and for the python of the venv that it makes.
case "$*" in
    *"-m venv "*)
        for venv; do :; done
        mkdir -p "$venv/bin" "$venv/lib/python3.11/site-packages"
        cp "$0" "$venv/bin/python"
        ;;
    *"-m pip install --upgrade "*)
        echo "$*" >>"$MACHINE/pip-upgrades"
        for file; do :; done
        case "$*" in *parts.lock) cat "$file" >"$MACHINE/parts" ;; esac
        case "$*" in *building.lock) cat "$file" >"$MACHINE/building" ;; esac
        ;;
    *"-m pip install "*)
        echo "$PWD" >>"$MACHINE/pip-runs"
        echo "$*" >"$MACHINE/pip-last"
        echo "$PIP_SAYS"
        [ -z "$PIP_KILLS" ] || kill -9 0
        [ -z "$PIP_SAYS" ] || exit 1
        case "$*" in
            *"[ovs]") mkdir -p "${0%/bin/*}/lib/python3.11/site-packages/os_ken" ;;
            *"ryu=="*) mkdir -p "${0%/bin/*}/lib/python3.11/site-packages/ryu" ;;
        esac
        ;;
    *"-m pip config "*) exit 1 ;;
    *"print("*version_info*) echo "$PYTHON_VERSION" ;;
    *version_info*) [ -z "$PYTHON_OLD" ] ;;
    *ensurepip*) [ -z "$VENV_MISSING" ] ;;
    *lab_programs.build*) [ -z "$CLANG_FAILS" ] && echo compiled >>"$MACHINE/compiled" ;;
    */bin/pillarbox*)
        printf '%s\n' "$PWD"
        while [ "${1#-}" != "$1" ]; do shift; done
        shift
        printf '<%s>' "$@"
        ;;
esac
"""

LOCK = """\
# Python: 3.10 3.11
# Machines: x86_64
# Part: lab
click==8.5.1 --hash=sha256:1
pip==26.3 --hash=sha256:2
pip-tools==1 --hash=sha256:3
# Part: simulator
numba==1 --hash=sha256:4
# Part: tests
mypy==1 --hash=sha256:5
"""

FAKE_APT = r"""#!/bin/sh
echo "$*" >>"$MACHINE/apt-runs"
echo "$APT_SAYS"
exit 100
"""


@dataclass
class Machine:
    """A machine with a checkout, and nothing on PATH but what its folder `bin` holds."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def checkout(self) -> Path:
        return self.folder / "a checkout"

    @property
    def venv(self) -> Path:
        return self.checkout / ".venv"

    @property
    def stamp(self) -> list[str]:
        return (self.venv / "pillarbox.stamp").read_text().splitlines()

    @property
    def pip_runs(self) -> int:
        runs = self.folder / "pip-runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    def program(self, name: str, text: str) -> Path:
        path = self.folder / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def environment(self) -> dict[str, str]:
        return {
            "PATH": str(self.folder / "bin"),
            "HOME": str(self.folder / "home"),
            "MACHINE": str(self.folder),
            "PILLARBOX_PYTHON": str(self.folder / "bin" / "python3"),
            "PILLARBOX_DIST_PACKAGES": str(self.folder / "dist-packages"),
            "PILLARBOX_LOG": str(self.folder / "log"),
            **self.settings,
        }

    def start(self, *command: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=cwd or self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self, *command: str | Path, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(*command, cwd=cwd)
        out, err = process.communicate(timeout=150)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def provision(self) -> subprocess.CompletedProcess[str]:
        return self.run("sh", self.checkout / "vagrant/provision.sh")

    def pillarbox(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.checkout / "pillarbox", *arguments)

    def become_root(self) -> None:
        self.program("id", "#!/bin/sh\necho 0\n")

    def everything(self) -> dict[str, tuple[int, int]]:
        """Return when each file was changed, and how long it is."""
        paths = sorted(self.folder.rglob("*"))
        return {str(p): (p.lstat().st_mtime_ns, p.lstat().st_size) for p in paths}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    for name in ["bin", "home", "dist-packages"]:
        (tmp_path / name).mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, f"{tool} is needed to run these tests"
        (tmp_path / "bin" / tool).symlink_to(found)
    made.program("python3", FAKE_PYTHON)
    made.program("id", "#!/bin/sh\necho 1000\n")
    made.program("uname", "#!/bin/sh\necho x86_64\n")
    for name in ["setup.py", *SCRIPTS]:
        target = made.checkout / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, target)
    (made.checkout / "vagrant/requirements.lock").write_text(LOCK)
    return made


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


def test_killed_run_is_begun_again(machine: Machine) -> None:
    machine.settings["PIP_KILLS"] = "yes"
    assert machine.provision().returncode == -9
    assert machine.stamp == ["unfinished"]
    half_made = machine.venv / "lib" / "half-made"
    half_made.touch()
    machine.settings.clear()
    assert machine.provision().returncode == 0
    assert machine.stamp[1] == str(machine.checkout)
    assert not half_made.exists()


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
        (["capture", "-h"], "\npillarbox capture [OPTIONS] [ADDR[:PORT]]...\n"),
        (["setup", "man", "--help"], "Install a man page for each command"),
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
