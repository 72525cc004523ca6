"""``python -m experiments`` is the command ``pillarbox``."""

from experiments.cli import main

main()
