"""The artifact of a run: one ZIP file with everything that a reviewer needs to read or repeat it.

::

    README.md                 what the run is, its results, and the two commands that repeat it
    run/                      the run's folder: manifest, records of trials, tables, report.html
    files/0-ring.py ...       users' files that the plan names: routers, controls, graphs, traces
    files.json                the place of each such file in the plan
    CITATION.cff
    ro-crate-metadata.json    description of the files by the RO-Crate standard, version 1.1
    SHA256SUMS

The same run gives the same bytes: entries are sorted, and their time is that of the run's end. An
artifact from elsewhere is hostile until it is checked: `opened` takes regular files of limited size
with plain names, and verifies the hashes. `repeated_plan` refuses code of users unless it is
trusted, since a router or a congestion control runs as root.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pillarbox.experiments.base.files import CHECKOUT, write_atomically
from pillarbox.experiments.runs.plans.experiment import Experiment
from pillarbox.experiments.runs.plans.loading import experiment_of
from pillarbox.experiments.runs.plans.values import plain
from pillarbox.experiments.runs.trials.manifest import versions
from pillarbox.experiments.runs.trials.records import MANIFEST, Run
from pillarbox.experiments.runs.trials.summary import text_of
from pillarbox.topos.base.errors import PillarboxError, require

SUFFIX = ".pillarbox.zip"
README, CRATE, SUMS, CITATION = "README.md", "ro-crate-metadata.json", "SHA256SUMS", "CITATION.cff"
RUN, FILES, PLACES = "run", "files", "files.json"
CODE = (".py", ".c")  # suffixes of users' files that are executed
DATA = (".graphml", ".json", ".dot", ".gv", ".csv", ".parquet")
MOST_ENTRIES, MOST_BYTES = 100_000, 4 << 30  # limits of an artifact that is opened
EPOCH = "1980-01-01T00:00:00+00:00"  # the first moment that a ZIP file can have
NAME = re.compile(r"[A-Za-z0-9._@+-]+(/[A-Za-z0-9._@+-]+)*")  # names of entries
HASH = re.compile(r"([0-9a-f]{64})  (\S+)")


class UserFile(NamedTuple):
    """A file that a run's plan names: the value in the plan, and the file's name in an artifact."""

    value: str
    name: str


def write_artifact(run: Run, file: Path) -> Path:
    """Write the artifact of a run; return its file."""
    moment = _moment(run)
    entries = dict(sorted(_entries(run)))
    sums = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in entries.items()
    )
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**entries, SUMS: sums.encode()}.items():
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    write_atomically(file, made.getvalue())
    return file


def _moment(run: Run) -> tuple[int, int, int, int, int, int]:
    """Return the time of an artifact's entries: the end of the run, or its begin."""
    at = datetime.fromisoformat(_ended(run))
    return at.year, at.month, at.day, at.hour, at.minute, at.second


def _ended(run: Run) -> str:
    """Return the time at which a run ended or, if it did not, began."""
    for name in ("ended", "begun"):
        if wall := run.manifest.get(name, {}).get("wall"):
            return str(wall)
    return EPOCH


def _entries(run: Run) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of an artifact's entries, in no order."""
    about: dict[str, str] = {}
    for path in run.folder.rglob("*"):
        inside = path.relative_to(run.folder)
        if path.is_file() and not path.is_symlink() and not _is_unfinished(inside):
            name = f"{RUN}/{inside.as_posix()}"
            about[name] = _sentence(inside)
            yield name, path.read_bytes()
    files = user_files(run.plan)
    for one in files:
        about[one.name] = f"file of the plan: {Path(_path_of(one.value)).name}"
        yield one.name, Path(_path_of(one.value)).read_bytes()
    places = {one.value: one.name for one in files}
    yield PLACES, (json.dumps(places, indent=1, sort_keys=True) + "\n").encode()
    yield CITATION, citation().encode()
    yield README, readme(run).encode()
    yield CRATE, (json.dumps(crate(run, about), indent=1) + "\n").encode()


def _is_unfinished(path: Path) -> bool:
    """Return True for a file that a run writes before it renames it."""
    return any(part.startswith(".") for part in path.parts)


def _sentence(inside: Path) -> str:
    """Return the description of a file of a run's folder."""
    if inside.name == MANIFEST:
        return "plan, versions of programs, machine and kernel settings"
    if inside.parts[0] == "trials":
        return f"records of trial {int(inside.parts[1])}" if len(inside.parts) > 1 else "trials"
    if inside.suffix in (".parquet", ".csv"):
        return f"table {inside.stem} of all trials"
    return {"report.html": "report", "page.html": "recording"}.get(
        inside.name, "figure of the report"
    )


# -- users' files ----------------------------------------------------------------------------------


def _path_of(value: str) -> str:
    """Return the path in a plan's value; a graph file is followed by its digest."""
    return value.partition("#")[0]


def user_files(experiment: Experiment) -> list[UserFile]:
    """Return the users' files that an experiment's plan names, or raise if one is gone."""
    found: dict[str, UserFile] = {}
    for value in _texts(plain(experiment)):
        path = _path_of(value)
        if "/" in path and path.endswith((*CODE, *DATA)) and value not in found:
            require(
                Path(path).is_file(),
                f"the run used {path}, which is gone: put it back at its place",
            )
            safe = re.sub(r"[^A-Za-z0-9._+-]", "_", Path(path).name)
            found[value] = UserFile(value, f"{FILES}/{len(found)}-{safe}")
    return [*found.values()]


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of nested plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


# -- texts -----------------------------------------------------------------------------------------


def citation() -> str:
    """Return the text of CITATION.cff: the project's, or a short one where it is not installed."""
    file = CHECKOUT / CITATION
    if file.is_file():
        return file.read_text(encoding="utf-8")
    return (
        "cff-version: 1.2.0\nmessage: If you use Pillarbox in your work, please cite it.\n"
        'title: "Pillarbox: a testbed for server-centric data center networks"\n'
        f"type: software\nversion: {versions()['version']}\n"
        "authors:\n  - name: The Pillarbox developers\n"
    )


def readme(run: Run) -> str:
    """Return the text that a reviewer reads first."""
    programs, machine = (run.manifest.get(name, {}) for name in ("pillarbox", "machine"))
    version = programs.get("version", "of an unknown version")
    kernel, count, model = (
        machine.get(name, "?") for name in ("kernel", "processors", "processor")
    )
    has_report = (run.folder / "report.html").exists()
    report = "`run/report.html` shows the results.\n\n" if has_report else ""
    commit = f" ({programs['commit'][:10]})" if programs.get("commit") else ""
    return f"""# {run.plan.name}

{run.plan.about}

{report}Repeat the run, which takes root and a Linux machine of a similar speed, and compare:

```sh
pipx install 'pillarbox[live]'
sudo pillarbox repeat FILE{SUFFIX}
```

Made by Pillarbox {version}{commit}, on Linux {kernel}, {count} processors ({model}).
`run/{MANIFEST}` has all versions and settings; the guide's page on records describes the tables;
`{SUMS}` has the hashes of all files.

```text
{text_of(run)}
```
"""


def crate(run: Run, about: Mapping[str, str]) -> dict[str, Any]:
    """Return the RO-Crate metadata (version 1.1) of an artifact's files."""
    ended = _ended(run)
    software = {
        "@id": "#pillarbox",
        "@type": "SoftwareApplication",
        "name": "Pillarbox",
        "softwareVersion": str(run.manifest.get("pillarbox", {}).get("version", "unknown")),
    }
    action = {
        "@id": "#run",
        "@type": "CreateAction",
        "name": f"run of the experiment {run.plan.name}",
        "startTime": run.manifest.get("begun", {}).get("wall", ended),
        "endTime": ended,
        "instrument": {"@id": "#pillarbox"},
        "result": [{"@id": name} for name in sorted(about)],
    }
    return {
        "@context": "https://w3id.org/ro/crate/1.1/context",
        "@graph": [
            {
                "@id": CRATE,
                "@type": "CreativeWork",
                "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
                "about": {"@id": "./"},
            },
            {
                "@id": "./",
                "@type": "Dataset",
                "name": run.plan.name,
                "description": run.plan.about or f"A run of the experiment {run.plan.name}.",
                "datePublished": ended,
                "license": "as stated by the authors of the run",
                "hasPart": [{"@id": name} for name in sorted(about)],
                "mentions": {"@id": "#run"},
            },
            software,
            action,
            *({"@id": name, "@type": "File", "description": about[name]} for name in sorted(about)),
        ],
    }


# -- opening ---------------------------------------------------------------------------------------


def opened(file: Path, folder: Path) -> Path:
    """Extract an artifact into an empty folder, after all checks; return the run's folder."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            _check_entries(file, entries)
            for entry in entries:
                place = folder / entry.filename
                place.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as stream:
                    content = stream.read(entry.file_size + 1)
                require(
                    len(content) == entry.file_size, f"{file}: {entry.filename} is longer than said"
                )
                write_atomically(place, content)
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, EOFError) as error:
        raise PillarboxError(f"{file} is no artifact of a run: {error}") from None
    _check_hashes(file, folder)
    require((folder / RUN / MANIFEST).is_file(), f"{file} is no artifact of a run: it has no run")
    return folder / RUN


def _check_entries(file: Path, entries: list[zipfile.ZipInfo]) -> None:
    """Raise PillarboxError unless all entries are plain files of limited number and size."""
    require(len(entries) <= MOST_ENTRIES, f"{file} has more than {MOST_ENTRIES} files")
    require(
        sum(entry.file_size for entry in entries) <= MOST_BYTES,
        f"{file} has more than {MOST_BYTES >> 30} GiB",
    )
    names = [entry.filename for entry in entries]
    require(len(set(names)) == len(names), f"{file} has two files of the same name")
    for entry in entries:
        parts = PurePosixPath(entry.filename).parts
        plain_name = NAME.fullmatch(entry.filename) and not {".", ".."} & {*parts}
        kind = entry.external_attr >> 28  # S_IFMT: 8 is a regular file, 0 unknown
        require(
            bool(plain_name) and kind in (0, 8) and not entry.is_dir(),
            f"{file}: {entry.filename[:80]!r} is no plain file with a plain name",
        )


def _check_hashes(file: Path, folder: Path) -> None:
    """Raise PillarboxError unless SHA256SUMS names all files, with their hashes."""
    sums = folder / SUMS
    require(sums.is_file(), f"{file} is no artifact of a run: it has no {SUMS}")
    lines = [HASH.fullmatch(line) for line in sums.read_text(encoding="utf-8").splitlines()]
    named = {found[2]: found[1] for found in lines if found}
    there = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    require({*named, SUMS} == {*there}, f"{file}: {SUMS} does not name exactly its files")
    for name, path in there.items():
        if name != SUMS:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            require(digest == named[name], f"{file}: {name} was changed after it was written")


def repeated_plan(folder: Path, plan: Mapping[str, Any], *, trusted: bool) -> Experiment:
    """Return the experiment of an extracted artifact, with its own files in place of the paths.

    `folder` is the artifact's; code of users is refused unless it is `trusted`.
    """
    try:
        places = json.loads((folder / PLACES).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PillarboxError(f"the artifact's {PLACES} cannot be read: {error}") from None
    whole = isinstance(places, dict) and all(
        isinstance(name, str) and name.startswith(f"{FILES}/") and (folder / name).is_file()
        for name in places.values()
    )
    require(whole, f"the artifact's {PLACES} names files that it does not have")
    code = sorted(Path(name).name for name in places.values() if name.endswith(CODE))
    require(
        trusted or not code,
        f"the artifact has code that would run as root: {', '.join(code)}; read it, then add "
        "--trust-code",
    )
    named = {value: str((folder / name).resolve()) for value, name in places.items()}

    def placed(value: Any) -> Any:
        if isinstance(value, str):
            if value in named:
                _, separator, digest = value.partition("#")
                return named[value] + separator + digest
            loose = "/" in value and _path_of(value).endswith(CODE)
            require(not loose, f"the plan names {value}, which is not in the artifact")
            return value
        if isinstance(value, dict):
            return {name: placed(inner) for name, inner in value.items()}
        return [placed(inner) for inner in value] if isinstance(value, list) else value

    return experiment_of(placed(dict(plan)))
