"""Command line of Pillarbox: loads subcommands by name and reports bad input in one line.

A subcommand is imported only when it is called, so that short commands start fast.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import sys
from itertools import chain
from pathlib import Path
from typing import NoReturn

import click

from pillarbox.experiments.base import interpreter
from pillarbox.experiments.base.arguments import OWN_PROCESS, Group, take_role_as_root
from pillarbox.experiments.base.files import CHECKOUT
from pillarbox.experiments.base.output import standard_streams
from pillarbox.experiments.base.text import printable
from pillarbox.hosts.base.fault_kinds import VERBS
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, meant

BAD_INPUT = 2  # Exit code of a command with bad input.
LONGEST = 4000  # Length limit of an error message, which may quote a file, in characters.
# Python modules by the extra of setup.py that installs them, as [sim].
EXTRAS = {
    "sim": ("highspy", "matplotlib", "networkx", "numba", "pandas", "google", "pyarrow", "scipy"),
    "live": ("aiohttp", "jinja2", "rich"),
    "test": ("pytest",),
}
# Modules by part of vagrant/requirements.lock; ./pillarbox installs a part on demand.
PARTS = {
    "simulator": ("numba",),
    "machines": ("cryptography", "dask", "distributed"),
    "tests": ("fnss", "hypothesis", "importlinter", "mypy", "pytest", "ruff"),
}
PARTS_VARIABLE = "PILLARBOX_PARTS"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a disk, or of a user's share of it
# click's names of types with bounds, and the words for their values
CLICK_TYPES = {"integer range": "integer", "float range": "number"}
RENAMED = {"--algorithm": "--routing"}
MOVED = {"labs release": "sheets release", "labs autograder": "sheets autograder"}
SECTIONS = {
    "First steps": (
        *("demo", "doctor", "topo", "path", "up", "page", "run", "report", "reproduce", "grade"),
    ),
    "Networks without a lab": (
        *("compare", "gap", "check-router", "simulate", "training", "packaging", "place"),
        "forecast",
    ),
    "Experiments": ("why-slow", "compare-runs", "calibrate", "cc", "artifact", "repeat"),
    "Live labs": ("labs", "down", "exec", "mpirun", "torchrun", "hosts", "cluster"),
    "Observation": ("status", "why", "trace", "load", "capture", "follow", "dissector"),
    "Measurements": ("ping", "pingall", "iperf", "finish", "metrics"),
    "Faults and changes": (*VERBS, "heal", "revive", "cable", "grow", "shrink"),
    "Teaching": ("grade-all", "class-network", "sheets"),
    "Maintenance": ("setup", "clean"),
}
if (CHECKOUT / "tests" / "commands").is_dir():
    SECTIONS["Development"] = ("test", "bench")
# Subcommands that neither start nor use a running lab.
WITHOUT_LAB = {
    *("topo", "path", *SECTIONS["Networks without a lab"]),
    *("report", "why-slow", "compare-runs", "artifact", "follow", "dissector"),
}


class Commands(Group):
    """Group of all subcommands: modules of `commands`, and verbs of a running lab."""

    sections = SECTIONS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the sorted names of all subcommands."""
        return sorted(chain(*self.sections.values()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the subcommand of a name (``compare-runs`` is in ``compare_runs.py``), or None."""
        if cmd_name not in self.list_commands(ctx):
            return None
        package = "pillarbox.experiments.cli.commands"
        if cmd_name in SECTIONS.get("Development", ()):
            # The checkout comes first, as another distribution may have a package `tests` too.
            sys.path.insert(0, str(CHECKOUT))
            package = "tests.commands"
        module = f"{package}.{cmd_name.replace('-', '_')}"
        if importlib.util.find_spec(module) is not None:
            command: click.Command = importlib.import_module(module).command
            return command
        from pillarbox.experiments.runs.control.verb_commands import command_of

        return command_of(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand of the arguments; raise PillarboxError with a hint if unknown."""
        known = self.list_commands(ctx)
        if not ctx.resilient_parsing and args[0] not in known and args[0][:1] != "-":
            raise UnknownNameError(
                f"there is no command {args[0]!r}: {meant(args[0], known)} (see --help)"
            )
        before = " ".join(args[:2])
        if before in MOVED:
            raise PillarboxError(f"the command '{before}' was renamed: use '{MOVED[before]}'")
        found = super().resolve_command(ctx, args)
        if args[0] in WITHOUT_LAB:
            take_role_as_root("command")
        return found


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="pillarbox")
def cli() -> None:
    """A testbed for server-centric data center networks: DPillar, DCell, BCube and FiConn.

    A network is written as its name and numbers: bcube,4,1 has 4-port switches and level 1.
    A server is written as dotted digits, most significant first: 1.3.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; bad input gives one line on stderr and exit code 2."""
    with standard_streams():
        _run(arguments)


def _run(arguments: list[str] | None) -> NoReturn:
    # One OpenBLAS thread: numpy would start more in each process, which busy-wait for a while.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    interpreter.use_own_home()
    interpreter.ignore_plot_settings()
    try:
        own = OWN_PROCESS if arguments is None else None
        outcome = cli.main(arguments, prog_name="pillarbox", standalone_mode=False, obj=own)
        sys.exit(outcome if isinstance(outcome, int) else 0)
    except PillarboxError as error:
        _exit_with_error(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(BAD_INPUT)
    except click.NoSuchOption as error:
        renamed = RENAMED.get(error.option_name, "")
        _exit_with_error(error.format_message() + (f" Did you mean {renamed}?" if renamed else ""))
    except click.ClickException as error:
        usage = getattr(error, "ctx", None)
        hint = f" (see {usage.command_path} --help)" if usage else ""
        said = error.format_message()
        for name, noun in CLICK_TYPES.items():
            said = said.replace(f"a valid {name}", f"a valid {noun}")
        _exit_with_error(said + hint)
    except ModuleNotFoundError as error:
        if arguments is None:
            _install_part(error)
        _exit_with_error(missing(error))
    except OSError as error:
        if isinstance(error, PermissionError) and error.filename is not None:
            _exit_with_error(f"{error.filename} is not accessible to this user: {error.strerror}")
        if error.errno not in DISK_FULL:
            raise
        _exit_with_error(f"{error.filename or 'a file'} cannot be written: {error.strerror}")
    except click.Abort:
        _exit_with_error("stopped")


def _install_part(error: ModuleNotFoundError) -> None:
    """Restart this command with ./pillarbox, which installs the missing Python module.

    Return if the module is in none of PARTS, or if ./pillarbox did not create this environment.
    """
    module = (error.name or "").partition(".")[0]
    part = next((name for name, modules in PARTS.items() if module in modules), None)
    requested = os.environ.get(PARTS_VARIABLE, "").split()
    launcher = CHECKOUT / "pillarbox"
    is_own_environment = Path(sys.prefix, "pillarbox.stamp").exists() and launcher.is_file()
    if part is None or part in requested or not is_own_environment:
        return
    click.echo(f"pillarbox: installing {module}, which this command needs", err=True)
    os.environ[PARTS_VARIABLE] = " ".join([*requested, part])
    os.execv(launcher, [str(launcher), *sys.argv[1:]])


def missing(error: ModuleNotFoundError) -> str:
    """Return a message that names the package with a missing module, or raise the error."""
    module = (error.name or "").partition(".")[0]
    if module == "mininet":
        command = f"'sudo {sys.prefix}/bin/pillarbox setup live'"
        return (
            f"this needs Debian's Mininet: {command} installs it; a checkout's ./pillarbox does too"
        )
    extra = next((name for name, modules in EXTRAS.items() if module in modules), None)
    if extra is None:
        raise error
    return f"this needs {module}: pip install 'pillarbox[{extra}]'"


def _exit_with_error(sentence: str) -> NoReturn:
    click.echo(f"pillarbox: {printable(' '.join(sentence.split()), LONGEST)}", err=True)
    sys.exit(BAD_INPUT)
