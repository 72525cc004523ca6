"""Lab 10: find the hidden fault. Fill in `step`; the sheet says what can be asked."""


def step(bcube, seen):
    """Return the next step, or the fault's name.

    `bcube` is the network, as in `from pillarbox.topos.bcube import BCube`. `seen` holds what you
    have asked so far, and what came of it: [[["capture", 0, 1], {"sent": 5, "heard": {"3": 5, "6":
    5}}], ...].
    """
    return ["ping", 0, 1]
