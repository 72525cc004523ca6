"""The papers' figures and tables, made again: one file each, found by its name.

``dcell_fig11.py`` is ``pillarbox reproduce dcell-fig11``. Each has ABOUT, a sentence; LIVE, whether
it needs a lab (and root) or the simulator; and ``reproduce(settings) -> Reproduction``.
"""
