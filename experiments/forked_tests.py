"""Run tests side by side, in processes that are forked once all tests are collected.

To import and collect all tests takes 13 s of a processor in a fresh clone. Workers that begin
anew, as those of pytest-xdist do, take that each.

A worker has a share of the tests, in their order, so that tests of one file find what the ones
before them have set up. When it has run all of its share, it takes the back half of the largest
share. Tests of live networks, marked `root`, wait for much, some of them long. With these all
workers begin but one, which begins with all other tests; and of these shares are taken first. So
processors have something to do while others wait, and the last tests to end are short ones.

What is marked `alone` or `long` runs when all workers have ended, in turn. What is marked `in_turn`
runs beside other tests, but not beside others so marked.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, pairwise, zip_longest
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

from hosts.linux.calls import die_with_parent

FORKING = multiprocessing.get_context("fork")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take --side-by-side."""
    parser.addoption("--side-by-side", type=int, metavar="N", help="run N tests at a time")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers; leave it to pytest where that is not asked for."""
    workers = session.config.getoption("--side-by-side")
    if not workers or session.testsfailed or session.config.option.collectonly:
        return None
    last = [item for item in session.items if _is_marked(item, "alone", "long")]
    together = [item for item in session.items if not _is_marked(item, "alone", "long")]
    _run(session, together, workers)
    for item, following in zip_longest(last, last[1:]):
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    return True


def _is_marked(item: pytest.Item, *names: str) -> bool:
    return any(item.get_closest_marker(name) for name in names)


class Shares:
    """Which tests each worker has still to run: places in the list of all.

    The first of them, so many, are shared by all workers but the last, which has all others.
    """

    def __init__(self, tests: int, workers: int, first: int) -> None:
        self._first = first
        others = max(1, workers - 1)
        ends = [*(first * worker // others for worker in range(workers)), tests]
        self._shares: Any = FORKING.Array("i", [*chain(*pairwise(ends))])

    def take(self, worker: int) -> int | None:
        """Return the next test for a worker; None where no worker has any left."""
        with self._shares.get_lock():
            shares = self._shares.get_obj()
            ranges = [*zip(shares[::2], shares[1::2], strict=True)]
            # Of each: whether they are some of the first, and how many they are.
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


class Reporter:
    """Passes a worker's reports to the process that prints them."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config, self._pipe = config, pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pass one on."""
        hook = self._config.hook
        self._pipe.send(hook.pytest_report_to_serializable(config=self._config, report=report))


def _run(session: pytest.Session, items: list[pytest.Item], workers: int) -> None:
    config: Any = session.config
    config._tmp_path_factory.getbasetemp()  # one for all
    items = sorted(items, key=lambda item: not _is_marked(item, "root"))
    live = sum(_is_marked(item, "root") for item in items)
    shares = Shares(len(items), workers, live)
    pipes = [_started(session, items, shares, worker) for worker in range(workers)]
    left = dict(enumerate(items))
    running: dict[Connection, pytest.Item] = {}
    while pipes:
        for pipe in wait(pipes):
            assert isinstance(pipe, Connection)
            said = _received(pipe)
            if said is None:
                pipes.remove(pipe)
                if pipe in running:
                    _report_death(running[pipe])
            elif isinstance(said, int):
                running[pipe] = left.pop(said)
            else:
                report = config.hook.pytest_report_from_serializable(config=config, data=said)
                config.hook.pytest_runtest_logreport(report=report)
                if report.when == "teardown":
                    del running[pipe]
    if left:  # since workers have died
        assert len(left) < len(items), "all workers have died before their first test"
        _run(session, [*left.values()], workers)


def _received(pipe: Connection) -> Any:
    """Return which test begins, or a report of it; None at the worker's end."""
    try:
        return pipe.recv()
    except EOFError:
        return None


def _report_death(item: pytest.Item) -> None:
    failed = partial(pytest.fail, "the process that ran it has died", pytrace=False)
    call = pytest.CallInfo.from_call(failed, when="call")
    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
    item.ihook.pytest_runtest_logreport(report=report)


def _started(
    session: pytest.Session, items: list[pytest.Item], shares: Shares, worker: int
) -> Connection:
    here, there = FORKING.Pipe(duplex=False)
    with warnings.catch_warnings():
        # Python 3.12 and later warn of threads; numpy's stand still, and know of forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        FORKING.Process(target=_work, args=(session, items, shares, worker, there)).start()
    there.close()
    return here


def _work(
    session: pytest.Session, items: list[pytest.Item], shares: Shares, worker: int, pipe: Connection
) -> None:
    die_with_parent(signal.SIGKILL)
    plugins: Any = session.config.pluginmanager
    captured = plugins.get_plugin("capturemanager")._global_capturing
    for stream in filter(None, (captured.out, captured.err)):
        with tempfile.TemporaryFile() as own:  # else what one prints would be all workers'
            os.dup2(own.fileno(), stream.tmpfile.fileno())
    plugins.unregister(name="terminalreporter")
    plugins.register(Reporter(session.config, pipe))
    place = shares.take(worker)
    while place is not None:
        following = shares.take(worker)  # now: what both need is not torn down between them
        item = items[place]
        nextitem = None if following is None else items[following]
        with _turn(item):
            pipe.send(place)
            item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        place = following


@contextmanager
def _turn(item: pytest.Item) -> Iterator[None]:
    """Wait until no other test that is marked `in_turn` runs, where this one is."""
    if not _is_marked(item, "in_turn"):
        yield
        return
    config: Any = item.config
    with (config._tmp_path_factory.getbasetemp() / "turn").open("w") as file:
        # A worker's death gives it back, and a test's own processes do not have it.
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield
