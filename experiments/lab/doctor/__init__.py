"""Checks of this machine for labs: each finding says the effect of a deficiency and its fix.

Features are tried rather than derived from version numbers: a kernel feature is used once, in a
temporary network namespace.
"""
