"""Declarations of headers that planes are to forward: what cannot be one is refused."""

from __future__ import annotations

from typing import Any

import pytest

from pillarbox.hosts.wire.dcn import DcnHeader, beginning
from pillarbox.hosts.wire.header import Header
from pillarbox.hosts.wire.header_layout import CHECKSUM, Field, HeaderLayout
from pillarbox.topos.base.errors import PillarboxError

REST = [Field("ttl", 8), Field("level", 8), Field(CHECKSUM, 16), Field("destination", 32)]


def header(*rest: Field, first: list[Field] | None = None, **options: Any) -> Header:
    layout = HeaderLayout([*(first or beginning(5, 12)), *rest], title="odd header")
    given = {"key": ("destination",), "every_hop": {"ttl": -1}} | options
    return Header("odd", {"odd": layout}, DcnHeader.parse, **given)


def test_a_header_knows_its_first_byte_and_its_keys() -> None:
    made = header(*REST, key=("level", "destination", "elsewhere"))
    (form,) = made.forms
    assert (made.version, form.first, form.size) == (5, 0x53, 12)
    assert [field.name for field in form.key] == ["level", "destination"]
    assert form.by(1, 3, 9) == form.by(1, 3, 9) != form.by(0, 3, 9)
    assert form.template((3, 9)).to_bytes(12, "big").hex() == "530000000003000000000009"


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: header(*REST[:2], Field("other", 16), REST[3]), "has a checksum"),
        (lambda: header(*REST, first=[Field("kind", 32)]), "begins with"),
        (lambda: header(*REST, first=beginning(4, 20)), "another version than IP's"),
        (lambda: header(*REST, Field("behind", 16)), "15 words at most"),
        (lambda: header(*REST, *[Field(f"word_{i}", 32) for i in range(13)]), "15 words at most"),
        (lambda: header(*REST, key=()), "1 to 4 of its fields"),
        (lambda: header(*REST, Field("far", 64), key=("far",)), "fields of up to 32 bits"),
    ],
)
def test_what_cannot_be_relayed_is_refused(made: Any, why: str) -> None:
    with pytest.raises(PillarboxError, match=why):
        made()


def test_two_forms_differ_by_one_word() -> None:
    short = HeaderLayout([*beginning(5, 12), *REST])
    long = HeaderLayout([*beginning(5, 20), *REST, Field("a", 32), Field("b", 32)])
    with pytest.raises(PillarboxError, match="two of one version that differ by one word"):
        Header("odd", {"short": short, "long": long}, DcnHeader.parse, every_hop={"ttl": -1})
