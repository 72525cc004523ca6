"""Some hundred damaged inputs for each reader; `bench fuzz-readers` feeds 100,000 to each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pillarbox.topos.base.errors import PillarboxError
from tests.benches import _mutations as mutations
from tests.benches import fuzz_readers
from tests.benches._readers import ReaderCase, readers

INPUTS = 100


@pytest.mark.parametrize("name", readers())
def test_it_is_read_or_refused_in_a_sentence(name: str) -> None:
    reader = readers()[name]
    row = fuzz_readers.fuzz_reader(name, reader, max(20, INPUTS // reader.share))
    assert row["failure"] == ""
    assert row["read"] + row["refused"] == row["inputs"]
    assert row["read"] > 0


def reader_of(read: Callable[[bytes], object]) -> ReaderCase:
    @contextmanager
    def prepared() -> Iterator[Callable[[bytes], object]]:
        yield read

    return ReaderCase(lambda: (b"1", b"22"), mutations.mutated_bytes, prepared)


def refuse(_: bytes) -> None:
    raise PillarboxError("no")


def crash(data: bytes) -> None:
    if data == b"22":
        raise KeyError(data)


def loop(data: bytes) -> None:
    while data != b"1":
        pass


def swell(_: bytes) -> None:
    bytearray(512 << 20)


def test_what_is_no_sentence_is_a_failure() -> None:
    assert fuzz_readers.fuzz_reader("a", reader_of(refuse), 5)["refused"] == 5
    failed = fuzz_readers.fuzz_reader("a", reader_of(crash), 5)
    assert failed["failure"] == "failed: KeyError(b'22') on input 1: b'22'"


def test_an_input_that_hangs_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_readers, "HANG_S", 0.05)
    assert (
        "it took more than 0.05 s" in fuzz_readers.fuzz_reader("a", reader_of(loop), 5)["failure"]
    )


def test_memory_has_a_bound() -> None:
    with fuzz_readers._bounded_memory():
        assert "MemoryError" in fuzz_readers.fuzz_reader("a", reader_of(swell), 1)["failure"]
    small = {"peak_mib": 80.0, "failure": ""}
    assert fuzz_readers._reader_verdict(dict(small)) == "ok"
    assert fuzz_readers._reader_verdict(small | {"peak_mib": 300.0}) == "failed: it used 300 MiB"
