"""Classes of errors: what a script can tell apart, also if another process reports the error."""

import pytest

from pillarbox import topos
from pillarbox.hosts.base.faults import read
from pillarbox.hosts.linux.netlink import NetlinkError
from pillarbox.topos.base.errors import (
    ERRORS,
    InvalidValueError,
    KernelError,
    PillarboxError,
    UnknownNameError,
    error_kind,
    reported_error,
)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_another_process_has_the_class_and_sentence_of_the_original(name: str) -> None:
    error = reported_error(error_kind(ERRORS[name]("why")), "why")
    assert (type(error), str(error)) == (ERRORS[name], "why")
    assert isinstance(error, PillarboxError)


def test_a_more_special_error_is_reported_by_its_class_in_the_tree() -> None:
    assert error_kind(NetlinkError(1, "make a cable", "")) == KernelError.__name__
    assert error_kind(InvalidValueError("wrong", "key")) == PillarboxError.__name__
    assert error_kind(OSError("full")) == ""
    assert type(reported_error("", "full")) is PillarboxError
    assert type(reported_error("SystemExit", "end")) is PillarboxError


@pytest.mark.parametrize("text", ["explode 0.0", "server"])
def test_unknown_names_of_faults_and_networks_are_unknown_names(text: str) -> None:
    with pytest.raises(UnknownNameError):
        read(text)
    with pytest.raises(UnknownNameError):
        topos.parse(f"{text.split(maxsplit=1)[0]},4,1")
