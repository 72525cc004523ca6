"""Benchmarks, one file each, found by file name: ``pillarbox bench cables`` runs cables.py.

A bench is a module with

- a docstring of one line, which ``pillarbox bench`` lists;
- ``run(quick)``, which yields rows. ``quick`` asks for sizes that a test can wait for;
- if need be ``NOTES``, a text that stands under the tables: what is compared, and what is not.

A row is a dict whose keys carry the unit (``build_s``, ``per_cable_ns``, ``peak_mib``). Rows that
follow one another and have the same keys are printed as one table; None is printed as a dash.
A row with the key ``outcome`` says there "ok", "skipped: why", "missed: why" (a goal) or
"failed: why". With one of the last two, ``pillarbox bench`` ends with exit code 1.

Files that begin with an underscore are no benches but what benches share; `_frame` finds them and
prints their rows. `experiments.linux.measurement` takes times in turns, and memory in processes of
their own.
"""
