"""What the kernel counts, read from files that the test writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pillarbox.experiments.runs.trust.machine import Machine, between, machine

PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 total=0\n"


def proc(folder: Path, stat: str, waited_us: int | None, cgroup: str = "0::/\n") -> Path:
    for name in ("pressure", "net", "self"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_text(f"cpu  {stat}\ncpu0 1 1 1 1\n")
    (folder / "net/softnet_stat").write_text("0000ff 00000002 0\n0000ff 0000001a 0\n")
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
    assert first.backlog_drops == 2 + 26


def test_what_programs_took_that_cannot_be_seen_is_foreign(tmp_path: Path) -> None:
    def program(number: int, user: int, childrens: int) -> None:
        (tmp_path / str(number)).mkdir(exist_ok=True)
        words = f"S 1 1 1 0 -1 0 0 0 0 0 {user} 5 {childrens} 5 20 0 1 0 7"
        (tmp_path / str(number) / "stat").write_text(f"{number} (a name) with ) in it) {words}")

    program(7, 100, 10)
    first = machine(proc(tmp_path, "500 0 100 400 0 0 0 0 0 0", None), tmp_path)
    program(7, 130, 25)  # 15 ticks are of children that were waited for
    program(8, 5, 0)
    last = machine(proc(tmp_path, "560 20 110 410 0 0 0 0 0 0", None), tmp_path)
    assert (first.own_ticks, last.own_ticks) == (110, 160)
    assert between(first, last).foreign == pytest.approx(0.3)  # (60 + 20 - 50) of 100 ticks


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


def test_shares_stay_between_0_and_1() -> None:
    first = Machine(5.0, (100, 0, 0, 100, 0, 0, 0, 0), 50, 0, 0)
    idle = Machine(7.0, (110, 0, 0, 190, 0, 0, 0, 0), 65, 3_000_000, 0)
    assert between(first, idle) == (1.0, 0.0, 0.9, 0.0)  # more own ticks than ticks in user mode
    assert between(first, first) == (0.0, 0.0, 0.0, 0.0)
    assert between(first, first._replace(pressure_us=1)).pressure == 1.0
    assert between(first, idle._replace(pressure_us=1)).pressure == 0.5e-6
    assert between(first, idle._replace(pressure_us=None)).pressure is None
    assert between(first._replace(pressure_us=None), idle).pressure is None


def test_a_cgroup_with_colons_and_a_program_that_has_just_ended(tmp_path: Path) -> None:
    own = tmp_path / "cgroups/labs:one:two"
    own.mkdir(parents=True)
    (own / "cpu.pressure").write_text(PRESSURE.format(77))
    folder = proc(tmp_path / "proc", "1 2 3 4 5 6 7 8 9 10", 5, "0::/labs:one:two\n")
    seen = machine(folder, tmp_path / "cgroups")
    assert seen.pressure_us == 77
    assert seen.ticks == (1, 2, 3, 4, 5, 6, 7, 8)
    assert seen.own_ticks == 0
