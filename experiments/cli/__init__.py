"""The command line: `main` finds a subcommand in `commands`, or a verb of a running lab."""
