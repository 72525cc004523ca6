"""The subcommands of ``pillarbox``: file NAME.py holds ``command``, a click command, for NAME.

Those that are only verbs of a running lab have no file: `experiments.control.verb_commands` makes
them.
"""
