"""Subcommands of ``pillarbox`` that only a checkout has."""
