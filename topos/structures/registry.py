"""Structure registry, and the parser for structure specs such as ``torus,8``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pillarbox.topos.base.errors import UnknownNameError, meant, require
from pillarbox.topos.structures import butterflies, grids, trees
from pillarbox.topos.structures.base import Structure


def structure_classes() -> dict[str, type[Structure]]:
    """Return the classes of all graph structures (mesh, ring, ...), by their names in specs."""
    structures = {
        value.example.partition(",")[0]: value
        for module in (grids, butterflies, trees)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Structure) and value.example
    }
    return dict(sorted(structures.items()))


def names() -> list[str]:
    """Return the names of all graph structures (mesh, ring, ...), in alphabetical order."""
    return list(structure_classes())


def parse(spec: str) -> Structure:
    """Return the graph structure (mesh, ring, ...) that a spec describes, or raise PillarboxError.

    >>> parse("debruijn,4,3").nodes
    64
    """
    name, *words = (word.strip() for word in spec.split(","))
    known = structure_classes()
    if name not in known:
        hint = meant(name, known)
        raise UnknownNameError(f"there is no graph structure {name!r}: {hint}")
    make: Callable[..., Any] = known[name]
    parameters = known[name].parameters
    require(
        len(words) == len(parameters)
        and all(w.isascii() and w.isdecimal() and len(w) <= 18 for w in words),
        f"structure {spec!r} is invalid: write {','.join([name, *parameters])} with whole numbers, "
        f"for example {known[name].example}",
    )
    structure: Structure = make(*map(int, words))
    return structure
