"""Write requirements.lock: the releases that provision.sh installs, with the hashes of their files.

    python3 vagrant/lock.py python3.10 python3.11 python3.12 python3.13

Releases are in parts, which provision.sh installs when they are needed: each stands in the first
part that needs it. Each interpreter's pip resolves what setup.py asks for, as of today, for the
Debian and Ubuntu releases that have it; nothing is installed. Hashes are those of the files that
pip would take on x86_64 and on aarch64. Run it with a recent pip, on x86_64, after a change of a
dependency in setup.py, and when a release in the lock has a known weakness.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parent.parent
LOCK = Path(__file__).with_name("requirements.lock")
EXTRAS = ".[test,bench]"  # all parts
PARTS = {"lab": "lab", "simulator": "sim", "machines": "dask", "tests": "test"}  # and their extras
OWN = "pillarbox"
BUILDING = ("pip", "packaging", "setuptools", "wheel")
OTHER_MACHINE = "aarch64"
MANYLINUX = (
    "manylinux_2_28",
    "manylinux_2_27",
    "manylinux_2_26",
    "manylinux_2_17",
    "manylinux2014",
)
HEAD = """\
# The releases that provision.sh installs, with the hashes of their files. Written by
# vagrant/lock.py, which says how; what may be installed at all stands in setup.py.
# Python: {pythons}
# Machines: x86_64 aarch64
"""


class Release(NamedTuple):
    """A release of a package."""

    name: str
    version: str


def main(pythons: list[str]) -> None:
    """Resolve with each interpreter, and write the lock."""
    show = "import sys; print('%d.%d' % sys.version_info[:2])"
    versions = [_output(python, "-c", show) for python in pythons]
    of_pythons: dict[Release, list[str]] = defaultdict(list)
    hashes: dict[Release, set[str]] = defaultdict(set)
    part_of: dict[str, str] = {}
    with ThreadPoolExecutor(len(pythons)) as pool:  # pip waits for the index most of the time
        resolved = pool.map(_resolved, pythons, versions)
        for version, (found, parts) in zip(versions, resolved, strict=True):
            for name, part in parts.items():  # the first part of any interpreter
                part_of[name] = min(part, part_of.get(name, part), key=[*PARTS].index)
            for release, values in found.items():
                of_pythons[release].append(version)
                hashes[release] |= values
    lines = []
    for part in PARTS:
        lines.append(f"# Part: {part}")
        lines += [
            f"{release.name}=={release.version}{_marker(of_pythons[release], versions)}"
            + "".join(f" --hash=sha256:{value}" for value in sorted(hashes[release]))
            for release in sorted(of_pythons)
            if part_of[release.name] == part
        ]
    LOCK.write_text(HEAD.format(pythons=" ".join(versions)) + "\n".join(lines) + "\n")


def _resolved(python: str, version: str) -> tuple[dict[Release, set[str]], dict[str, str]]:
    """Return what an interpreter's pip would install, with hashes of files, and each one's part."""
    hashes: dict[Release, set[str]] = {}
    compiled = []
    report = _report(python, *BUILDING, EXTRAS)
    for one in report["install"]:
        if not one["is_direct"]:
            hashes[_release(one)] = {_hash(one)}
            if not _is_for_all_machines(one["download_info"]["url"]):
                compiled.append("==".join(_release(one)))
    for one in _report(python, *_for_other_machine(version), *compiled)["install"]:
        hashes[_release(one)].add(_hash(one))
    return hashes, parts_of(report)


def parts_of(report: dict[str, Any]) -> dict[str, str]:
    """Return the first part that needs each package of pip's report, by the package's name."""
    metadata = {
        canonicalize_name(one["metadata"]["name"]): one["metadata"] for one in report["install"]
    }
    found = dict.fromkeys(BUILDING, next(iter(PARTS)))
    for part, extra in PARTS.items():
        todo, seen = [(OWN, frozenset({extra}))], set()
        while todo:
            name, extras = todo.pop()
            if (name, extras) in seen or name not in metadata:
                continue
            seen.add((name, extras))
            found.setdefault(name, part)
            for text in metadata[name].get("requires_dist", ()):
                wanted = Requirement(text)
                if _is_needed(wanted, extras, report["environment"]):
                    todo.append((canonicalize_name(wanted.name), frozenset(wanted.extras)))
    last = [*PARTS][-1]
    return {name: found.get(name, last) for name in metadata if name != OWN}


def _is_needed(wanted: Requirement, extras: frozenset[str], environment: dict[str, str]) -> bool:
    """Tell whether an interpreter needs a requirement of a package with these extras."""
    marker = wanted.marker
    return marker is None or any(
        marker.evaluate({**environment, "extra": extra}) for extra in extras | {""}
    )


def _report(python: str, *words: str) -> dict[str, Any]:
    """Return pip's report of what an interpreter would get."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--dry-run"]
        pip += ["--ignore-installed", "--report", str(file), *words]
        subprocess.run(pip, check=True, cwd=CHECKOUT)
        return dict(json.loads(file.read_text()))


def _for_other_machine(version: str) -> list[str]:
    words = ["--no-deps", "--only-binary", ":all:", "--python-version", version]
    words += ["--target", tempfile.gettempdir()]  # pip wants one, and writes nothing into it
    return words + [f"--platform={tag}_{OTHER_MACHINE}" for tag in MANYLINUX]


def _release(one: dict[str, Any]) -> Release:
    metadata = one["metadata"]
    return Release(
        metadata["name"].lower().replace("_", "-").replace(".", "-"), metadata["version"]
    )


def _is_for_all_machines(url: str) -> bool:
    """Tell whether a file is the same for all machines: in Python alone, or source."""
    return not url.endswith(".whl") or url.endswith("-any.whl")


def _hash(one: dict[str, Any]) -> str:
    return str(one["download_info"]["archive_info"]["hashes"]["sha256"])


def _marker(own: list[str], every: list[str]) -> str:
    if own == every:
        return ""
    return " ; " + " or ".join(f'python_version == "{version}"' for version in own)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1:])
