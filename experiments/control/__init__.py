"""What can be asked of a running lab, by its prompt, by its socket and from Python."""
