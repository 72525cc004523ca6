"""``python -m experiments`` is the command ``pillarbox``."""

from experiments.cli.main import main

main()
