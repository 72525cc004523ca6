"""Command lines that start another Python process of Pillarbox in isolated mode.

``python -m MODULE`` puts the current directory first on the import path and reads PYTHONPATH and
the user's site-packages. Users with write access to one of these directories could run code with
the rights of the caller, who is often root. Every Python process of Pillarbox therefore starts in
isolated mode (``-I``), and receives the import path of its parent as an argument.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pillarbox.hosts.base.file_ownership import foreign_writer, is_machine_root

SET_PATH = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
RUN_MODULE = (
    "import runpy; del sys.argv[0]; "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
# Variables that name directories from which libraries load settings, plug-ins or compiled code.
LIBRARY_DIRECTORIES = (
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("MPLCONFIGDIR", "MATPLOTLIBRC", "NUMBA_CACHE_DIR", "DASK_CONFIG", "DASK_ROOT_CONFIG"),
)


def module_command(module: str, *words: object) -> list[str]:
    """Return the command line that runs a module of Pillarbox with the given arguments."""
    return code_command(RUN_MODULE, module, *words)


def code_command(code: str, *words: object) -> list[str]:
    """Return the command line that runs Python code with the words in ``sys.argv[1:]``."""
    return [*_isolated_python(), "-c", SET_PATH + code, json.dumps(import_path()), *map(str, words)]


def script_command(file: Path) -> list[str]:
    """Return the command line of a script under `python -I`: the script must extend sys.path."""
    return [*_isolated_python(), str(file)]


def import_path() -> list[str]:
    """Return this process's import path without the current directory."""
    return [place for place in sys.path if Path(place).is_absolute()]


def _isolated_python() -> list[str]:
    # Isolated mode ignores the environment variables of these two flags.
    flags = ["-B"] * sys.dont_write_bytecode + ["-X", "utf8"] * sys.flags.utf8_mode
    return [sys.executable, "-I", *flags]


def require_modules(*names: str) -> None:
    """Raise ModuleNotFoundError for the first module that is not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def use_own_home() -> None:
    """Make libraries of a root process read settings and caches from root's directories only.

    ``sudo -E`` and some configurations of sudo keep the caller's HOME. From that directory numba
    loads compiled code and Dask reads names of modules to import, and matplotlib writes to it.
    """
    if not is_machine_root():
        return
    if foreign_writer(Path(os.environ.get("HOME") or "/")):
        os.environ["HOME"] = pwd.getpwuid(0).pw_dir
    for name in LIBRARY_DIRECTORIES:
        if name in os.environ and foreign_writer(Path(os.environ[name])):
            del os.environ[name]


def ignore_plot_settings() -> None:
    """Import matplotlib without reading a settings file (matplotlibrc) in the current directory."""
    if Path("matplotlibrc").exists():
        with outside_current_directory(), suppress(ImportError):
            importlib.import_module("matplotlib")


@contextmanager
def outside_current_directory() -> Iterator[None]:
    """Change to the directory / within a `with` block, so that libraries read no local settings.

    When imported, numba reads ``.numba_config.yaml`` of the current directory, which can name a
    directory of compiled code, and matplotlib reads ``matplotlibrc``. multiprocessing starts
    servers with ``python -c``.
    """
    # O_PATH also opens a directory that this user may enter but not list.
    before = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)
    os.chdir("/")
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)
