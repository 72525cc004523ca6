"""Parallel test runner (pytest plugin): workers are forked after all tests are collected.

The import and collection of all tests takes 13 s of processor time in a fresh clone. Workers that
start as new processes, as in pytest-xdist, take this time each.

Each worker has a share of the tests, in their order, so that tests of one file can use the fixtures
of the tests before. A worker that has run its share takes the second half of the largest share.
Tests of live networks, marked `root`, mostly wait, some of them for long. All workers except one
begin with these tests, and the other worker begins with all other tests; shares of `root` tests are
taken first. So processors are busy while live tests wait, and the last tests to end are short.

Tests marked `alone` or `long` run one at a time after all workers have ended. Tests marked
`in_turn` run in parallel with other tests, but not with each other.

The kernel may drop a packet of one test because of the load of another, or of another machine on
the same processors. So a test marked `root`, `in_turn` or `alone` that fails runs once more, alone,
and that result counts; the summary names the test and prints the first failure. At most `REPEATED`
tests are repeated.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, pairwise, zip_longest
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from pillarbox.hosts.linux.calls import die_with_parent

FORKING = multiprocessing.get_context("fork")
# Bound on the number of failed tests that run again: more failures have another cause than load.
REPEATED = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the pytest option --side-by-side, the number of parallel workers."""
    parser.addoption("--side-by-side", type=int, metavar="N", help="run N tests at a time")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in parallel workers if --side-by-side is given; return None otherwise."""
    workers = session.config.getoption("--side-by-side")
    if not workers or session.testsfailed or session.config.option.collectonly:
        return None
    last = [item for item in session.items if _is_marked(item, "alone", "long")]
    together = [item for item in session.items if not _is_marked(item, "alone", "long")]
    repeats = Repeats()
    session.config.pluginmanager.register(repeats)
    _run_parallel(session, together, workers, repeats)
    last = [*repeats.failed, *last]
    for item, following in zip_longest(last, last[1:]):
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    return True


def _is_marked(item: pytest.Item, *names: str) -> bool:
    return any(item.get_closest_marker(name) for name in names)


class Shares:
    """Tests that each parallel pytest worker has still to run, as ranges of the list of tests.

    The first `first` tests are shared by all workers except the last, which has all other tests.
    """

    def __init__(self, tests: int, workers: int, first: int) -> None:
        self._first = first
        others = max(1, workers - 1)
        ends = [*(first * worker // others for worker in range(workers)), tests]
        self._shares: Any = FORKING.Array("i", [*chain(*pairwise(ends))])

    def take(self, worker: int) -> int | None:
        """Return the index of a worker's next test; None if no share has a test left."""
        with self._shares.get_lock():
            shares = self._shares.get_obj()
            ranges = [*zip(shares[::2], shares[1::2], strict=True)]
            # For each share: True if it has tests of the first group, and its number of tests.
            left = [(begin < min(end, self._first), end - begin) for begin, end in ranges]
            if ranges[worker][0] == ranges[worker][1]:
                largest = left.index(max(left))
                begin, end = ranges[largest]
                middle = begin + (end - begin) // 2
                shares[2 * worker : 2 * worker + 2] = [middle, end]
                shares[2 * largest + 1] = middle
                if middle == end:
                    return None
            place: int = shares[2 * worker]
            shares[2 * worker] += 1
            return place


class Repeats:
    """Pytest plugin that runs failed tests again, with the tests and their first failures."""

    def __init__(self) -> None:
        self.failed: dict[pytest.Item, pytest.TestReport] = {}

    def holds_back(self, item: pytest.Item, reports: list[pytest.TestReport]) -> bool:
        """Return whether a test runs again, so that these reports of it do not count."""
        failure = next((report for report in reports if report.failed), None)
        if failure is None or item in self.failed or len(self.failed) == REPEATED:
            return False
        if not _is_marked(item, "root", "in_turn", "alone"):
            return False
        self.failed[item] = failure
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Run a test marked `alone`, and if it fails once more, with new fixtures."""
        if not _is_marked(item, "alone"):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if self.holds_back(item, reports):
            item.session._setupstate.teardown_exact(None)
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
        _log(item.config, reports)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the first failures of the tests that ran again."""
        if self.failed:
            terminalreporter.section("failed at first, then ran again alone")
        for item, failure in self.failed.items():
            terminalreporter.write_line(f"{item.nodeid}:")
            terminalreporter.write_line(failure.longreprtext)


class Reporter:
    """Pytest plugin of a worker, which sends its test reports to the parent process."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config, self._pipe = config, pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a pytest report of a test from a worker to the parent process."""
        hook = self._config.hook
        self._pipe.send(hook.pytest_report_to_serializable(config=self._config, report=report))


def _run_parallel(
    session: pytest.Session, items: list[pytest.Item], workers: int, repeats: Repeats
) -> None:
    config: Any = session.config
    config._tmp_path_factory.getbasetemp()  # Create the temporary folder that all workers share.
    items = sorted(items, key=lambda item: not _is_marked(item, "root"))
    live = sum(_is_marked(item, "root") for item in items)
    shares = Shares(len(items), workers, live)
    started = [_start_worker(session, items, shares, worker) for worker in range(workers)]
    processes, pipes = [process for process, _ in started], [pipe for _, pipe in started]
    try:
        left = _collect_reports(config, items, pipes, repeats)
    except BaseException:  # Ctrl-C, for instance
        for process in processes:
            process.kill()
        raise
    if left:  # Tests that no worker has run, as workers have died.
        assert len(left) < len(items), "all workers have died before their first test"
        _run_parallel(session, left, workers, repeats)


def _collect_reports(
    config: Any, items: list[pytest.Item], pipes: list[Connection], repeats: Repeats
) -> list[pytest.Item]:
    """Log the reports of all workers until they end; return the tests that no worker has run."""
    left = dict(enumerate(items))
    running: dict[Connection, pytest.Item] = {}
    reports: dict[Connection, list[pytest.TestReport]] = defaultdict(list)
    while pipes:
        for pipe in wait(pipes):
            assert isinstance(pipe, Connection)
            message = _receive(pipe)
            if message is None:
                pipes.remove(pipe)
                if pipe in running:
                    _log(config, reports.pop(pipe, []))
                    _report_death(running[pipe])
            elif isinstance(message, int):
                running[pipe] = left.pop(message)
            else:
                report = config.hook.pytest_report_from_serializable(config=config, data=message)
                reports[pipe].append(report)
                if report.when == "teardown":
                    ended = reports.pop(pipe)
                    if not repeats.holds_back(running.pop(pipe), ended):
                        _log(config, ended)
    return [*left.values()]


def _log(config: Any, reports: list[pytest.TestReport]) -> None:
    for report in reports:
        config.hook.pytest_runtest_logreport(report=report)


def _receive(pipe: Connection) -> Any:
    """Receive a worker's message: the index of a test that begins, a report, or None at its end."""
    try:
        return pipe.recv()
    except EOFError:
        return None


def _report_death(item: pytest.Item) -> None:
    failed = partial(pytest.fail, "the worker process of this test has died", pytrace=False)
    call = pytest.CallInfo.from_call(failed, when="call")
    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
    item.ihook.pytest_runtest_logreport(report=report)


def _start_worker(
    session: pytest.Session, items: list[pytest.Item], shares: Shares, worker: int
) -> tuple[ForkProcess, Connection]:
    parent_end, worker_end = FORKING.Pipe(duplex=False)
    with warnings.catch_warnings():
        # Python 3.12 and later warn of a fork with threads; numpy's threads idle and support forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = FORKING.Process(
            target=_run_worker, args=(session, items, shares, worker, worker_end)
        )
        process.start()
    worker_end.close()
    return process, parent_end


def _run_worker(
    session: pytest.Session, items: list[pytest.Item], shares: Shares, worker: int, pipe: Connection
) -> None:
    die_with_parent(signal.SIGKILL)
    plugins: Any = session.config.pluginmanager
    captured = plugins.get_plugin("capturemanager")._global_capturing
    for stream in filter(None, (captured.out, captured.err)):
        # Each worker needs a separate file for captured output: a fork shares the parent's.
        with tempfile.TemporaryFile() as capture_file:
            os.dup2(capture_file.fileno(), stream.tmpfile.fileno())
    plugins.unregister(name="terminalreporter")
    plugins.register(Reporter(session.config, pipe))
    place = shares.take(worker)
    while place is not None:
        # pytest gets the next test now: it keeps fixtures that both tests share.
        following = shares.take(worker)
        item = items[place]
        nextitem = None if following is None else items[following]
        with _exclusive_turn(item):
            pipe.send(place)
            item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        place = following


@contextmanager
def _exclusive_turn(item: pytest.Item) -> Iterator[None]:
    """Wait until no other worker runs a test marked `in_turn`, if this test is marked `in_turn`."""
    if not _is_marked(item, "in_turn"):
        yield
        return
    config: Any = item.config
    with (config._tmp_path_factory.getbasetemp() / "turn").open("w") as file:
        # The lock ends with the worker, and child processes of a test do not inherit it.
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield
