"""Lab 7: all-to-all against the tree. Put numbers in place of None; a formula does as well.

`network` is the server-centric network of your sheet, `tree` the tree beside it. Rates are in
Mbit/s, times in seconds.
"""


def predicted():
    """Return what you work out before you measure anything: sections 1 to 3 of the sheet."""
    return {
        "network": {
            "busiest_flows": None,  # flows on the cable that has most, in one direction
            "slowest_mbit": None,  # max-min fair, headers not taken off
            "fastest_mbit": None,
            "total_mbit": None,  # of all flows together
            "completion_s": None,  # the last flow's end, headers taken off
        },
        "tree": {
            "busiest_flows": None,
            "slowest_mbit": None,
            "fastest_mbit": None,
            "total_mbit": None,
            "completion_s": None,
        },
        "speed_up": None,  # how many times as long the tree takes
    }


def measured():
    """Return what a run says that is valid: section 4."""
    return {
        "rate_mbit": None,  # that of your sheet, or a lower one if your machine needs it
        "network": {"valid": None, "completion_s": None, "of_ideal": None},
        "tree": {"valid": None, "completion_s": None, "of_ideal": None},
    }


def overloaded():
    """Return what a run says that you overloaded on purpose: section 5."""
    return {
        "rate_mbit": None,
        "volume_bytes": None,
        "network": {
            "valid": None,
            "completion_s": None,
            "ideal_s": None,  # what it should have been at that rate
            "as_if_mbit": None,  # the rate of cables with which it would have been the truth
        },
        "tree": {"valid": None, "completion_s": None, "ideal_s": None, "as_if_mbit": None},
        "speed_up": None,  # from the two times measured
    }


def explained():
    """Return which statements of section 6 hold: True or False; None if you do not know."""
    return dict.fromkeys("abcdefgh")
