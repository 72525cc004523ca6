"""Experiments by name: each file defines EXPERIMENT, and is found by its file name.

Where nothing fails, servers run with the papers' timers: heart-beats that are waited for 5 s cannot
be missed by a machine that is busy for a moment. The fast timers are for what fails.
"""
