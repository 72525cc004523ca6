"""``python -m pillarbox`` is the command ``pillarbox``."""

from pillarbox.experiments.cli.main import main

main()
