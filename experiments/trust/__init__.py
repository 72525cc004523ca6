"""Whether a result can be trusted: what is watched while a trial runs, and the verdict."""
