"""Tests and benches, and the commands of ``pillarbox`` that run them.

Other distributions install a package of this name too: this file makes the first one on the import
path count, which is the checkout's (`pillarbox.experiments.cli.main`).
"""
