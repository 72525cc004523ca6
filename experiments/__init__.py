"""Experiments on the networks, their records, and the command line.

>>> from experiments import load                                         # doctest: +SKIP
>>> load("quick-20260301-101500-seed1").flows                           # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.runs.records import Run, load

__all__ = ["Run", "load"]


def __getattr__(name: str) -> Any:
    # On demand: most commands have no use for pandas.
    if name in __all__:
        from experiments.runs import records

        return getattr(records, name)
    raise AttributeError(f"module 'experiments' has no attribute {name!r}")
