"""A made-up machine for tests of the bootstrap: its own PATH, its own apt-get, its own Python."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPTS = [
    "pillarbox",
    "vagrant/provision.sh",
    "vagrant/debian_packages.sh",
    "vagrant/help.sh",
]

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


def machine_in(folder: Path) -> Machine:
    """Return a machine without an environment, in an empty folder."""
    made = Machine(folder)
    for name in ["bin", "home", "dist-packages"]:
        (folder / name).mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, f"{tool} is needed to run these tests"
        (folder / "bin" / tool).symlink_to(found)
    made.program("python3", FAKE_PYTHON)
    made.program("id", "#!/bin/sh\necho 1000\n")
    made.program("uname", "#!/bin/sh\necho x86_64\n")
    for name in ["setup.py", *SCRIPTS]:
        target = made.checkout / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, target)
    (made.checkout / "vagrant/requirements.lock").write_text(LOCK)
    return made
