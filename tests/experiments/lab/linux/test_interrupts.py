"""Ctrl-C while a process is started: it comes when the process is on record."""

import signal

import pytest

from pillarbox.experiments.base.processes import interrupt_deferred


def test_an_interrupt_comes_at_the_end_of_the_block() -> None:
    done: list[str] = []

    def start() -> None:
        with interrupt_deferred():
            signal.raise_signal(signal.SIGINT)
            done.append("recorded")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["recorded"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_an_interrupt_nothing_is_raised_and_an_ignored_one_stays_ignored() -> None:
    with interrupt_deferred():
        pass
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupt_deferred():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
