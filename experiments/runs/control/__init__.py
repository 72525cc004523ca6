"""Commands and queries of a running lab: at its prompt, over its socket and from Python."""
