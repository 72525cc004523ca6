"""Conversion between dataclasses and plain data of TOML or JSON files; errors name the key.

>>> from pillarbox.experiments.runs.plans.experiment import FaultAt
>>> made(FaultAt, {"fault": "cut 0.3-4.0 at 2", "systems": ["a tree"]}, "faults.0")
FaultAt(fault='cut 0.3-4.0 at 2', systems=('a tree',))
>>> made(FaultAt, "kill 1.3", "faults.0")
FaultAt(fault='kill 1.3', systems=())
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

from pillarbox.topos.base.errors import InvalidValueError, PillarboxError, meant, require

NOTHING = ("none", "")  # Texts that mean None on a command line.
TRUTHS = {"true": True, "false": False}  # Texts of truth values on a command line.
# Ends of the names of options that are numbers with a fraction, and no addresses.
UNITS = ("_s", "_mbit", "_bps", "_percent", "_share", "tflops", "skew")


def plain(value: Any) -> Any:
    """Convert a dataclass to plain data: dicts, lists, numbers and strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    return value


def differences(first: Any, second: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of two nested dicts: dotted key and both values (None if missing).

    >>> [*differences({"seed": 1, "systems": [{"mtu": 1}]}, {"seed": 2, "systems": [{"mtu": 9}]})]
    [('seed', 1, 2), ('systems.0.mtu', 1, 9)]
    """
    if isinstance(first, list) and isinstance(second, list):
        first, second = dict(enumerate(first)), dict(enumerate(second))
    if not (isinstance(first, dict) and isinstance(second, dict)):
        if first != second:
            yield name, first, second
        return
    for key in {**first, **second}:
        way = f"{name}.{key}" if name else str(key)
        yield from differences(first.get(key), second.get(key), way)


def made(kind: Any, value: Any, place: str) -> Any:
    """Convert dicts, lists and scalars (from TOML or JSON) to a type, such as a dataclass.

    Raises PillarboxError with the key for unknown keys and values of other types. A text is parsed
    as the type requires, so that command lines can pass numbers as text.
    """
    if dataclasses.is_dataclass(kind):
        if isinstance(value, str):  # A text instead of a table sets the dataclass's first field.
            value = {dataclasses.fields(kind)[0].name: value}
        return _dataclass_value(kind, value, place)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union_value(inner, value, place)
    if origin is tuple:
        if isinstance(value, str):
            value = value.split(",")
        require(isinstance(value, (list, tuple)), f"{place} is a list, not {_value_text(value)}")
        return tuple(made(inner[0], one, f"{place}.{at}") for at, one in enumerate(value))
    if kind is Any:
        return value
    if origin is not None:  # Options of a routing or a traffic pattern are a dictionary.
        require(isinstance(value, Mapping), f"{place} is a table, not {_value_text(value)}")
        return dict(value)
    return _scalar_value(kind, value, place)


def fields_of(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name."""
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in dataclasses.fields(kind)}


def _dataclass_value(kind: Any, value: Any, place: str) -> Any:
    where = f"{place}." if place else ""
    require(
        isinstance(value, Mapping), f"{place or 'the value'} is a table, not {_value_text(value)}"
    )
    known = fields_of(kind)
    for key in value:
        if key not in known:
            form = getattr(kind, "WRITTEN", "")
            hint = f"write {form}" if form else f"there are {', '.join(known)}"
            sentence = f"unknown key {where}{key}: {meant(str(key), known, hint)}"
            raise InvalidValueError(sentence, f"{where}{key}")
    for one in dataclasses.fields(kind):
        optional = (
            one.default is not dataclasses.MISSING or one.default_factory is not dataclasses.MISSING
        )
        require(optional or one.name in value, f"{where}{one.name} is missing")
    arguments = {key: _value_at(f"{where}{key}", known[key], one) for key, one in value.items()}
    try:
        return kind(**arguments)
    except InvalidValueError:
        raise
    except PillarboxError as error:
        raise InvalidValueError(str(error), place) from None


def _value_at(place: str, kind: Any, value: Any) -> Any:
    """Convert a TOML or JSON value to a type; errors carry the key of the innermost wrong value."""
    try:
        return made(kind, value, place)
    except InvalidValueError:
        raise
    except PillarboxError as error:
        raise InvalidValueError(str(error), place) from None


def _union_value(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    """Convert plain data to one type of a union: the dataclass that has most of its keys."""
    optional = type(None) in kinds
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    if optional and (value is None or (isinstance(value, str) and value.lower() in NOTHING)):
        return None
    if len(kinds) == 1:
        return made(kinds[0], value, place)
    if isinstance(value, Mapping):
        kinds = tuple(sorted(kinds, key=lambda kind: -len(fields_of(kind).keys() & value.keys())))
    return made(kinds[0], value, place)


def _scalar_value(kind: Any, value: Any, place: str) -> Any:
    """Convert plain data to a string, a truth value, an integer or a float."""
    if kind is bool:
        found = TRUTHS.get(value.lower(), value) if isinstance(value, str) else value
        require(isinstance(found, bool), f"{place} is true or false, not {_value_text(value)}")
        return found
    if kind is str:
        require(isinstance(value, str), f"{place} is a text, not {_value_text(value)}")
        return value
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    require(math.isfinite(number), f"{place} is a number, not {_value_text(value)}")
    if kind is int:
        require(number.is_integer(), f"{place} is a whole number, not {_value_text(value)}")
        return int(value) if isinstance(value, int) else int(number)
    return number


def guessed(name: str, text: str) -> Any:
    """Convert a command-line text to the value of an option whose type is not declared.

    ``0.3`` is a server's address, unless the option's name ends in a unit.

    >>> guessed("flows", "4"), guessed("source", "0.3"), guessed("jitter_s", "0.3")
    (4, '0.3', 0.3)
    >>> guessed("skew", "1.2")
    1.2
    """
    found = json_or_text(text)
    is_address = isinstance(found, float) and not name.endswith(UNITS)
    return text if is_address else found


def json_or_text(text: str) -> Any:
    """Return the value of a JSON text, or the text if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def job_options(text: str) -> dict[str, Any]:
    """Return the options of one of several training jobs from their text.

    >>> job_options("tp=4 pp=2 name=large"), job_options("tp=4,pp=2")
    ({'tp': 4, 'pp': 2, 'name': 'large'}, {'tp': 4, 'pp': 2})
    >>> job_options("operation=all-reduce bytes=1e6")
    {'operation': 'all-reduce', 'bytes': 1000000.0}
    """
    found: dict[str, Any] = {}
    for word in filter(None, re.split(r"[,\s]+(?=[\w-]+=)", text.strip())):
        name, equals, value = word.partition("=")
        require(
            bool(equals and name),
            f"{word!r} is no option of a job: write NAME=VALUE, such as 'tp=4 pp=2'",
        )
        name = name.replace("-", "_")
        require(name not in found, f"the job {text.strip()!r} sets {name} twice: write it once")
        found[name] = value if name == "name" else json_or_text(value)
    require(bool(found), "a job has no options: write them as 'tp=4 pp=2'")
    return found


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) and value else repr(value)
