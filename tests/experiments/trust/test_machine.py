"""What the kernel counts, read from files that the test writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.trust.machine import between, machine

PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 total=0\n"


def proc(folder: Path, stat: str, waited_us: int | None, cgroup: str = "0::/\n") -> Path:
    for name in ("pressure", "net", "self"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_text(f"cpu  {stat}\ncpu0 1 1 1 1\n")
    (folder / "net/softnet_stat").write_text("0000ff 00000002 0\n0000ff 0000000a 0\n")
    (folder / "self/cgroup").write_text(cgroup)
    if waited_us is not None:
        (folder / "pressure/cpu").write_text(PRESSURE.format(waited_us))
    return folder


def test_shares_of_the_time_between(tmp_path: Path) -> None:
    first = machine(proc(tmp_path, "100 0 100 800 0 0 0 0 0 0", 1000), tmp_path)
    last = machine(proc(tmp_path, "130 0 120 840 5 0 0 5 0 0", 1000), tmp_path)
    busy = between(first, last._replace(at_s=first.at_s + 2.0, pressure_us=1_001_000))
    assert busy.pressure == pytest.approx(0.5)
    assert (busy.idle, busy.steal) == (0.45, 0.05)
    assert (first.backlog_drops, busy.backlog_drops) == (12, 0)


def test_pressure_is_that_of_the_own_cgroup_where_the_kernel_tells(tmp_path: Path) -> None:
    own = tmp_path / "cgroups/labs/one"
    own.mkdir(parents=True)
    (own / "cpu.pressure").write_text(PRESSURE.format(77))
    folder = proc(tmp_path / "proc", "1 1 1 1 1 1 1 1", 5, "3:cpu:/other\n0::/labs/one\n")
    assert machine(folder, tmp_path / "cgroups").pressure_us == 77
    assert machine(folder, tmp_path / "elsewhere").pressure_us == 5


def test_a_kernel_without_pressure_says_nothing_of_it(tmp_path: Path) -> None:
    seen = machine(proc(tmp_path, "1 1 1 1 1 1 1 1", None), tmp_path)
    assert between(seen, seen).pressure is None
