"""The subcommands of ``pillarbox``: file NAME.py holds ``command``, a click command, for NAME."""
