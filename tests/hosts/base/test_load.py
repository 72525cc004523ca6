"""Users' own Python files: which are run, and what goes wrong in them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pillarbox import topos
from pillarbox.experiments.runs.plans import loading
from pillarbox.hosts.base.load import module_from, router_for
from pillarbox.topos.base.errors import PillarboxError

TOML = """
systems = [{{network = "bcube,2,1", routing = "{file}"}}]
workload = {{duration_s = 1.0}}
"""


def as_routing(file: Path) -> object:
    return router_for(topos.parse("bcube,2,1"), str(file))


def as_experiment(file: Path) -> object:
    return loading.load(str(file))


def in_toml(file: Path) -> object:
    toml = file.with_suffix(".toml")
    toml.write_text(TOML.format(file=file))
    (system,) = loading.load(str(toml)).systems
    return as_routing(Path(system.routing))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is careful with others' files")
@pytest.mark.parametrize("load", [as_routing, as_experiment, in_toml])
def test_root_runs_nobody_elses_file(
    load: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, file = tmp_path / "ran", tmp_path / "mine.py"
    file.write_text(f"from pathlib import Path\nPath({str(ran)!r}).touch()\n")
    monkeypatch.setenv("SUDO_UID", "1000")
    for owner, mode in ((1001, 0o644), (1000, 0o666)):
        os.chown(file, owner, owner)
        file.chmod(mode)
        with pytest.raises(
            PillarboxError, match="is not run as root, since other users can modify the file"
        ):
            load(file)
    assert not ran.exists()
    file.chmod(0o644)
    with pytest.raises(PillarboxError, match=r"defines 0 routers|must define EXPERIMENT"):
        load(file)
    assert ran.exists()


def test_file_that_is_missing_or_fails_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PillarboxError, match="No such file"):
        as_routing(tmp_path / "no.py")
    with pytest.raises(PillarboxError, match="Is a directory"):
        module_from(tmp_path, "router")
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(PillarboxError, match="is not a regular file"):
        as_routing(tmp_path / "pipe.py")
    (tmp_path / "mine.py").write_text("\n1 / 0\n")
    with pytest.raises(PillarboxError, match=r"ZeroDivisionError.*\(line 2\)"):
        as_routing(tmp_path / "mine.py")
