"""Benchmarks, one file each, found by file name: ``pillarbox bench cables`` runs cables.py.

A bench is a module with

- a docstring of one line, which ``pillarbox bench`` lists;
- ``run(quick)``, which yields rows. ``quick`` selects sizes that are small enough for a test;
- optionally ``NOTES``, a text printed under the tables that explains the comparison and its limits.

A row is a dict whose keys contain the unit (``build_s``, ``per_cable_ns``, ``peak_mib``).
Consecutive rows with the same keys are printed as one table; None is printed as a dash. The key
``outcome`` has the value "ok", "skipped: why", "missed: why" (a goal) or "failed: why". With one of
the last two, ``pillarbox bench`` ends with exit code 1.

Files that begin with an underscore contain code that benches share; `_frame` finds the benches and
prints their rows. `pillarbox.experiments.lab.linux.measurement` measures times in turns, and memory
in separate processes.
"""
