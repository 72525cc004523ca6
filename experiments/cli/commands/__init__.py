"""Subcommands of ``pillarbox``: module NAME.py has the click command ``command`` of NAME.

Subcommands that only send a verb to a running lab have no module:
`pillarbox.experiments.runs.control.verb_commands` creates them.
"""
