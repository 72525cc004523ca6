"""What holds for all tests: those that need root have a sandbox each, and are killed with it."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from pillarbox.hosts.linux.user_namespace import refusal
from tests.harness.huge_pages import collapse_into_huge_pages

# The same examples each time, and as long as they take: what fails is what somebody changed, and
# not the luck of the draw or of the machine. `pillarbox test --all` draws many others.
settings.register_profile(
    "same",
    max_examples=30,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "many", max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")

gc.disable()  # until all tests are collected: nothing of them is garbage
TIME_LIMIT_S = 300  # only a guard: a busy machine may be many times slower than a quiet one
MANY = 1000  # number of tests from which huge pages save more time than they take
SKIPPED = 77  # the exit code of a test that skips itself in its sandbox


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take --snapshot-update."""
    parser.addoption(
        "--snapshot-update", action="store_true", help="write the files that tests compare with"
    )


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a file that is reviewed like code."""

    def compare(file: Path, text: str) -> None:
        if request.config.getoption("--snapshot-update"):
            file.write_text(text)
        assert file.exists(), f"there is no {file.name}: run this test with --snapshot-update"
        assert text.splitlines() == file.read_text().splitlines(), "or --snapshot-update, if right"

    return compare


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail for tests that cannot be imported: as doctests they would be passed over."""
    report = yield
    if report.skipped and "unable to import module" in str(report.longrepr):
        report.outcome = "failed"
    return report


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked `long`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most cases of a test marked `few` to --all; skip the tests marked `root` without root.

    Those marked `without_root` as well run in a user namespace then.
    Of a test marked `few` each value of each parameter stays in one case at least.
    """
    cases = [item for item in items if item.get_closest_marker("few")]
    cases.sort(key=lambda item: hashlib.sha256(item.nodeid.encode()).digest())
    seen: dict[str, set[tuple[str, str]]] = {}
    kept = set()
    for enough in (all, any):  # first the cases whose values are all new, so that few are needed
        for item in cases:
            known = seen.setdefault(item.nodeid.partition("[")[0], set())
            values = {(name, repr(value)) for name, value in item.callspec.params.items()}
            if enough(value not in known for value in values):
                kept.add(item)
                known |= values
    for item in cases:
        if item not in kept:
            item.add_marker(pytest.mark.long)
    for item in items:
        in_user_namespace = item.get_closest_marker("without_root") and not refusal()
        if item.get_closest_marker("root") and os.geteuid() != 0 and not in_user_namespace:
            item.add_marker(pytest.mark.skip(reason="needs root: sudo ./pillarbox test"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what was loaded for all tests out of garbage collection: a sixth of their time."""
    gc.collect()
    gc.freeze()
    if len(session.items) >= MANY:
        collapse_into_huge_pages()
    gc.enable()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """Call a test marked `root` in a sandbox; what it says about its failure is passed out."""
    if pyfuncitem.get_closest_marker("root") is None:
        return None
    import pillarbox.experiments.lab.emulation.lab_network  # noqa: F401 - once, and not in every sandbox anew
    from pillarbox.experiments.lab.linux import sandbox

    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    def program() -> int:
        signal.alarm(TIME_LIMIT_S)
        try:
            pyfuncitem.obj(**arguments)
        except pytest.skip.Exception as skipped:
            print(skipped, file=sys.__stderr__)
            return SKIPPED
        except BaseException:  # noqa: BLE001 - told to the caller by text and exit code
            traceback.print_exc(file=sys.__stderr__)  # whatever the test itself captures
            return 1
        return 0

    code = sandbox.run(program)
    if code == SKIPPED:
        pytest.skip("in its sandbox, which says why on stderr")
    if code:
        pytest.fail(f"exit code {code} in the sandbox: its message is on stderr", pytrace=False)
    return True
