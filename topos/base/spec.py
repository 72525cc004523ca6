"""Network discovery, and the parser for specs such as ``bcube,4,1`` or ``net.graphml``.

A network is a file in topos/ with one subclass of Topology; the file name is the network's name in
specs. A new network needs no registration, and only the network that a spec names is imported.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Iterator, Set
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, meant, require
from pillarbox.topos.base.graph_file import named_file
from pillarbox.topos.base.levels import OPTIONS, LevelFactors, parse_factors
from pillarbox.topos.base.topology import Topology

# Package `topos`, taken from sys.modules, since an import statement would be circular.
TOPOS = sys.modules["pillarbox.topos"]
# Files of topos/ that define no network: custom.py is for the option --custom of Mininet's mn.
NOT_NETWORKS = {"custom"}
# preferred minimum number of servers in the example networks of `small`
LEAST_SERVERS = 8


def kinds() -> list[str]:
    """Return the names of all kinds of networks (bcube, dcell, ...), in alphabetical order."""
    names = (module.name for module in pkgutil.iter_modules(TOPOS.__path__) if not module.ispkg)
    return sorted(name for name in names if name not in NOT_NETWORKS and name[0] != "_")


def small() -> list[str]:
    """Return the smallest example spec of each network that needs routing.

    Preferred are examples with at least eight servers, some of them two hops apart; a network
    without such an example contributes its smallest one.

    >>> {"bcube,4,1", "dcell,4,1"} <= set(small())
    True
    """
    specs = []
    for kind in kinds():
        examples = [(parse(spec), spec) for spec in network(kind).examples]
        multi_hop = [pair for pair in examples if (pair[0].diameter_bound().value or 2) > 1]
        large = [pair for pair in multi_hop or examples if pair[0].servers >= LEAST_SERVERS]
        specs.append(min(large or examples, key=lambda pair: pair[0].servers)[1])
    return specs


def network(kind: str) -> type[Topology]:
    """Return the class of the network of that kind (bcube, ...), or raise PillarboxError."""
    known = kinds()
    if kind not in known:
        hint = meant(kind, [*known, *_structures().structure_classes()], meant(kind, known))
        raise UnknownNameError(f"there is no network {kind!r}: {hint}")
    with report_network_file_errors(kind):
        module = importlib.import_module(f"pillarbox.topos.{kind}")
    for network_class in vars(module).values():
        if (
            inspect.isclass(network_class)
            and issubclass(network_class, Topology)
            and network_class.__module__ == module.__name__
            and not inspect.isabstract(network_class)
        ):
            return network_class
    raise PillarboxError(
        f"{module.__file__} defines no complete subclass of Topology; see docs/extending.md"
    )


@contextmanager
def report_network_file_errors(kind: str) -> Iterator[None]:
    """Turn an exception that is raised in a network's file into a PillarboxError.

    Its text names the file, the line and the exception. Exceptions raised elsewhere pass.
    """
    try:
        yield
    except (PillarboxError, ImportError):
        raise
    except Exception as error:
        files = {str(Path(folder) / f"{kind}.py") for folder in TOPOS.__path__}
        place = _place_of_error(error, files)
        if place is None:
            raise
        said = error.msg if isinstance(error, SyntaxError) else error
        raise PillarboxError(f"{place}: {type(error).__name__}: {said}") from error


def _place_of_error(error: Exception, files: Set[str]) -> str | None:
    """Return file and line of the innermost call in one of the files, None without such a call."""
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
    found = [f"{file}, line {line}" for file, line in places if file in files]
    return found[-1] if found else None


def parse(spec: str) -> Topology:
    """Return the network that a spec such as ``bcube,4,1`` describes, or raise PillarboxError.

    >>> parse("bcube,4,1").servers
    16
    >>> parse("bcube,8,3,servers=2048").switches
    1280
    >>> parse("hypercube,6").cables  # a graph structure of topos/structures
    192
    >>> parse("bcube,4,1,rates=9:1").factors.rates
    (9, 1)

    A spec that ends in .graphml, .json, .dot or .gv names a file with a graph
    (`pillarbox.topos.base.graph`).
    """
    if named := named_file(spec):
        from pillarbox.topos.base.graph import graph_network

        return graph_network(named)
    kind, *words = (word.strip() for word in spec.split(","))
    if (structure := _structure(kind, spec)) is not None:
        return structure
    network_class = network(kind)
    signature = inspect.signature(network_class).parameters
    needed = [name for name, parameter in signature.items() if _is_positional(parameter)]
    repeats = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.values())
    numbers: list[int] = []
    options: dict[str, int] = {}
    factors: dict[str, str] = {}
    for word in words:
        name, equals, value = word.rpartition("=")
        if name in OPTIONS and name not in signature and name not in factors:
            factors[name] = value
        elif equals:
            require(
                name in signature and name not in options,
                f"network {spec!r}: option {word!r} is unknown or repeated; {usage(network_class)}",
            )
            options[name] = _parameter_value(value, spec, network_class)
        else:
            require(
                not options and not factors,
                f"network {spec!r}: {word!r} must come before the options; {usage(network_class)}",
            )
            numbers.append(_parameter_value(value, spec, network_class))
    given = [*needed[: len(numbers)], *options]
    require(
        (len(numbers) <= len(needed) or repeats)
        and len(given) == len(set(given))
        and set(needed) <= set(given),
        f"network {spec!r} has too many or too few numbers; {usage(network_class)}",
    )
    with report_network_file_errors(kind):
        return _with_factors(network_class(*numbers, **options), factors)


def _with_factors(topology: Topology, given: dict[str, str]) -> Topology:
    """Return the network with the factors of these options, or raise PillarboxError.

    Factors that are all 1 are left out, since they change nothing.
    """
    if not given:
        return topology
    levels = topology.levels
    found = {}
    for option, value in given.items():
        factors = parse_factors(option, value, topology.spec)
        require(
            levels > 1,
            f"{topology.spec} has one level of cables, so {option}={value} does not apply: give "
            "the lab's rate, delay or price instead",
        )
        require(
            len(factors) == levels,
            f"{topology.spec} has {levels} levels of cables, and {option}={value} gives "
            f"{len(factors)}: write one factor per level, level 0 first",
        )
        found[option] = () if set(factors) == {1} else factors
    return topology.with_level_factors(LevelFactors(**found))


def _structure(kind: str, spec: str) -> Topology | None:
    """Return the graph structure that a spec names, None if it names a network or nothing."""
    known = kinds()
    if kind in known:
        return None
    found: Topology | None = _structures().structure_network(spec, known)
    return found


def _structures() -> Any:
    """Return the module of graph structures, imported by name, since it imports this folder."""
    return importlib.import_module("pillarbox.topos.structures.network")


@cache  # cached, since `parse` calls it for every spec that it reads
def usage(network_class: type[Topology]) -> str:
    """Return the hint how to write a network's spec, such as ``write tree,n,m,[servers=..]``."""
    names = [
        _parameter_usage(parameter)
        for parameter in inspect.signature(network_class).parameters.values()
    ]
    kind = network_class.__module__.rpartition(".")[2]
    example = f", for example {network_class.examples[0]}" if network_class.examples else ""
    return f"write {','.join([kind, *names])}{example}"


def _is_positional(parameter: inspect.Parameter) -> bool:
    """Return True if a spec gives this parameter by position, as the n of ``bcube,n,k``."""
    return parameter.default is parameter.empty


def _parameter_usage(parameter: inspect.Parameter) -> str:
    """Return the notation of a parameter in a spec: ``n``, ``a,b,..`` or ``[servers=..]``."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return "a,b,.."
    return parameter.name if _is_positional(parameter) else f"[{parameter.name}=..]"


def _parameter_value(word: str, spec: str, network_class: type[Topology]) -> int:
    """Return a parameter of a network's spec as an int, or raise PillarboxError."""
    digits = word.removeprefix("-")
    # At most 18 digits are parsed: int() of a megabyte of digits takes minutes.
    require(
        digits.isascii() and digits.isdecimal() and len(digits) <= 18,
        f"network {spec!r}: {word!r} is not a whole number; {usage(network_class)}",
    )
    return int(word)
