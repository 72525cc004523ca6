"""Networks by name: which there are, and which one a spec such as ``bcube,4,1`` means.

A network is a file in topos/ with one subclass of Topology; its file name is its name in specs.
So a new network is found the moment its file is there, and only the network that is asked for is
imported.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from functools import cache

from topos.base.errors import PillarboxError, meant, require
from topos.base.topology import Topology

# The package above this module: loaded before it, and without importing it, which were a circle.
TOPOS = sys.modules["topos"]
# Files of topos/ that are no network: what Mininet's --custom reads.
NOT_NETWORKS = {"custom"}
LEAST_SERVERS = 8


def kinds() -> list[str]:
    """Return the names of all networks found, in alphabetical order."""
    names = (module.name for module in pkgutil.iter_modules(TOPOS.__path__) if not module.ispkg)
    return sorted(name for name in names if name not in NOT_NETWORKS and name[0] != "_")


def small() -> list[str]:
    """Return of every network found its smallest example in which there is something to route.

    That is one of eight servers or more, some of which are two hops apart, if it has any such.

    >>> {"bcube,4,1", "dcell,4,1"} <= set(small())
    True
    """
    found = []
    for kind in kinds():
        examples = [(parse(spec), spec) for spec in network(kind).examples]
        routed = [one for one in examples if (one[0].diameter_bound().value or 2) > 1]
        large = [one for one in routed or examples if one[0].servers >= LEAST_SERVERS]
        found.append(min(large or examples, key=lambda one: one[0].servers)[1])
    return found


def network(kind: str) -> type[Topology]:
    """Return the class of the network with that name, or raise PillarboxError."""
    known = kinds()
    if kind not in known:
        hint = meant(kind, known)
        raise PillarboxError(f"there is no network {kind!r}: {hint}")
    module = importlib.import_module(f"topos.{kind}")
    for found in vars(module).values():
        if (
            inspect.isclass(found)
            and issubclass(found, Topology)
            and found.__module__ == module.__name__
            and not inspect.isabstract(found)
        ):
            return found
    raise PillarboxError(
        f"{module.__file__} defines no complete Topology; docs/extending.md has one"
    )


def parse(spec: str) -> Topology:
    """Return the network that the spec describes, or raise PillarboxError.

    >>> parse("bcube,4,1").servers
    16
    >>> parse("bcube,8,3,servers=2048").switches
    1280
    """
    kind, *words = (word.strip() for word in spec.split(","))
    found = network(kind)
    signature = inspect.signature(found).parameters
    needed = [n for n, p in signature.items() if p.default is inspect.Parameter.empty]
    numbers: list[int] = []
    options: dict[str, int] = {}
    for word in words:
        name, equals, value = word.rpartition("=")
        if equals:
            require(
                name in signature and name not in options,
                f"{spec!r}: {word!r} is not understood; {usage(found)}",
            )
            options[name] = _number(value, spec, found)
        else:
            require(not options, f"{spec!r}: {word!r} stands behind an option; {usage(found)}")
            numbers.append(_number(value, spec, found))
    given = [*needed[: len(numbers)], *options]
    require(
        len(numbers) <= len(needed) and len(given) == len(set(given)) and set(needed) <= set(given),
        f"{spec!r} does not have the right numbers; {usage(found)}",
    )
    return found(*numbers, **options)


@cache  # every spec asks for it
def usage(found: type[Topology]) -> str:
    """Return how a network's spec is written, in a few words."""
    names = [
        name if parameter.default is inspect.Parameter.empty else f"[{name}=..]"
        for name, parameter in inspect.signature(found).parameters.items()
    ]
    kind = found.__module__.rpartition(".")[2]
    example = f", for example {found.examples[0]}" if found.examples else ""
    return f"write {','.join([kind, *names])}{example}"


def _number(word: str, spec: str, found: type[Topology]) -> int:
    digits = word.removeprefix("-")
    # Eighteen digits are far beyond any network; int() of a megabyte of digits would take minutes.
    require(
        digits.isascii() and digits.isdecimal() and len(digits) <= 18,
        f"{spec!r}: {word!r} is not a whole number; {usage(found)}",
    )
    return int(word)
