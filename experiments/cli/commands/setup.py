"""``pillarbox setup``: installation of shell completion, man pages and optional software."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

import click

from pillarbox.experiments.base.arguments import Group

# Debian's packages for live labs, as in vagrant/provision.sh.
LIVE_PACKAGES = (
    *("bridge-utils", "clang", "ethtool", "iperf3", "iproute2", "iputils-ping", "kmod"),
    *("libbpf-dev", "libseccomp2", "mininet", "net-tools", "openssl", "procps", "psmisc"),
    *("tcpdump", "tshark"),
)
DEBIANS_MININET = Path("/usr/lib/python3/dist-packages/mininet")
SYSTEM, OWN = Path("/usr/local/share"), Path("~/.local/share")


class ShellCompletion(NamedTuple):
    """A shell's completion file, relative to the data folder of all users or of one user."""

    file: str
    note: str = ""  # instruction for the shell's user to enable completion


SHELLS = {
    "bash": ShellCompletion("bash-completion/completions/pillarbox"),
    "zsh": ShellCompletion(
        "zsh/site-functions/_pillarbox",
        "add this line to ~/.zshrc: fpath+=(~/.local/share/zsh/site-functions)",
    ),
    "fish": ShellCompletion("fish/vendor_completions.d/pillarbox.fish"),
}


@click.group(cls=Group)
def command() -> None:
    """Install shell completion, man pages, or optional software.

    \b
    pillarbox setup completion
    pillarbox setup man
    sudo pillarbox setup live
    sudo ./pillarbox setup openflow
    sudo ./pillarbox setup mpi
    """


def _installation_folder(folder: Path | None) -> Path:
    """Return the folder for completions and man pages: /usr/local/share for root, or the user's."""
    return folder or (SYSTEM if os.geteuid() == 0 else OWN.expanduser())


@command.command("completion")
@click.argument("shells", nargs=-1, type=click.Choice(list(SHELLS)))
@click.option(
    "--under",
    type=click.Path(file_okay=False, path_type=Path),
    help="Installation directory (default: /usr/local/share as root, else ~/.local/share).",
)
@click.pass_context
def completion(ctx: click.Context, shells: tuple[str, ...], under: Path | None) -> None:
    """Install shell completion for bash, zsh and fish.

    With sudo it is installed for all users. It takes effect in new shells.

    \b
    pillarbox setup completion
    """
    from click.shell_completion import get_completion_class

    from pillarbox.experiments.base.files import write_atomically

    for name in shells or SHELLS:
        made = get_completion_class(name)
        assert made is not None
        file = _installation_folder(under) / SHELLS[name].file
        file.parent.mkdir(parents=True, exist_ok=True)
        text = made(ctx.find_root().command, {}, "pillarbox", "_PILLARBOX_COMPLETE").source()
        write_atomically(file, text.encode())
        note = "" if os.geteuid() == 0 or under else SHELLS[name].note
        click.echo(f"{name}: {file}" + (f"\n  {note}" if note else ""))


@command.command("man")
@click.option(
    "--under",
    type=click.Path(file_okay=False, path_type=Path),
    help="Installation directory (default: /usr/local/share as root, else ~/.local/share).",
)
@click.pass_context
def man(ctx: click.Context, under: Path | None) -> None:
    """Install a man page for each command.

    \b
    pillarbox setup man
    man pillarbox-path
    """
    from pillarbox.experiments.base.files import write_atomically
    from pillarbox.experiments.cli.manual import as_man, entries

    folder = _installation_folder(under) / "man" / "man1"
    folder.mkdir(parents=True, exist_ok=True)
    pages = list(entries(ctx.find_root().command, "pillarbox"))
    for page in pages:
        write_atomically(folder / f"{page.name.replace(' ', '-')}.1", as_man(page).encode())
    click.echo(f"{len(pages)} pages in {folder}")


@command.command("openflow")
def openflow() -> int:
    """Install Open vSwitch, os-ken and Ryu, for `up --plane ovs`.

    Needs root. With an init system, Debian's package starts a service, which labs do not use: each
    lab starts separate daemons.

    \b
    sudo ./pillarbox setup openflow
    sudo ./pillarbox up fattree,4 --plane ovs
    """
    return _run_provision_script(
        "PILLARBOX_OPENFLOW",
        "Open vSwitch",
        "sudo apt-get install openvswitch-switch, and pip install 'pillarbox[ovs]'",
    )


@command.command("live")
def live() -> int:
    """Install Debian's packages for live labs, and link Debian's Mininet to this Pillarbox.

    Needs root. For a Pillarbox that pip, pipx or uv installed; the checkout's ./pillarbox does this
    at its first start.

    \b
    pipx install 'pillarbox[live]'
    sudo "$(command -v pillarbox)" setup live
    """
    from pillarbox.topos.base.errors import PillarboxError, require

    require(os.geteuid() == 0, "installing Debian's packages needs root: use sudo")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        for words in (["update"], ["install", "-y", "--no-install-recommends", *LIVE_PACKAGES]):
            subprocess.run(["apt-get", *words], env=environment, check=True)
    except FileNotFoundError:
        raise PillarboxError(
            f"this system has no apt-get: install what Debian calls {' '.join(LIVE_PACKAGES)}"
        ) from None
    except subprocess.CalledProcessError as error:
        return error.returncode
    link = Path(sysconfig.get_path("purelib"), "mininet")
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(DEBIANS_MININET)
    return 0


@command.command("mpi")
def mpi() -> int:
    """Install Open MPI and mpi4py, for `mpirun`.

    Needs root. mpi4py is installed for the system's Python.

    \b
    sudo ./pillarbox setup mpi
    sudo ./pillarbox mpirun -- hostname
    """
    return _run_provision_script(
        "PILLARBOX_MPI", "Open MPI", "sudo apt-get install openmpi-bin python3-mpi4py"
    )


@command.command("tests")
def tests() -> int:
    """Install optional software for tests, which are skipped without it.

    Needs root. Installs the software of `setup openflow` and `setup mpi`, and on Debian Chromium
    and openssh-server, whose service starts if there is an init system.

    \b
    sudo ./pillarbox setup tests
    """
    by_hand = "sudo apt-get install openvswitch-switch chromium openssh-server"
    return _run_provision_script("PILLARBOX_TESTS", "software for tests", by_hand)


def _run_provision_script(variable: str, software: str, by_hand: str) -> int:
    """Run the provision script with an environment variable set to 1; return its exit code."""
    from pillarbox.experiments.base.files import CHECKOUT
    from pillarbox.topos.base.errors import require

    script = CHECKOUT / "vagrant" / "provision.sh"
    require(
        script.is_file(),
        f"this Pillarbox is no checkout and cannot install {software}; instead: {by_hand}",
    )
    require(os.geteuid() == 0, f"installing {software} needs root: use sudo")
    environment = {**os.environ, variable: "1"}
    return subprocess.run(["sh", script], env=environment, check=False).returncode
