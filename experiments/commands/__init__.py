"""Subcommands of ``pillarbox``: module NAME.py has the click command ``command`` of NAME.

Those that are only verbs of a running lab have no file: `experiments.control.verb_commands` makes
them.
"""
