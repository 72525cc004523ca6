"""Li 2009, Fig. 6 to 9 by every reading of virtual flows and of available bandwidth (section IV).

The text and Algorithm 3 allow several ends of a virtual flow
(`pillarbox.hosts.ficonn.tar.READINGS`), and do not say how a simulated server knows its available
bandwidth (`flows.READINGS_OF_TAR`).
"""

from __future__ import annotations

from pillarbox.experiments.apps.papers.ficonn.flows import (
    READINGS_OF_TAR,
    TAKEN,
    fig6_claims,
    fig8_claims,
    notes,
    path_length_claims,
    simulate_flow_draws,
)
from pillarbox.experiments.apps.papers.shared.figure import Made, figure
from pillarbox.experiments.apps.papers.shared.joint_table import ClaimsByFigure, joint_table
from pillarbox.experiments.runs.reporting.reproduced.result import Settings

LIVE = (
    "Live servers measure unused bandwidth with byte counters, as section IV.A says, and count "
    "bandwidths within 10 % of each other as equal. By number, an idle flow would count like one "
    "that fills the port. The flows of the paper's simulation are alike, so that the bandwidth "
    "for one more flow follows from their number."
)


@figure(
    "ficonn-readings",
    "readings of FiConn's virtual flows and available bandwidth, and four figures (Li 2009)",
    "Interpretations of FiConn's traffic-aware routing",
    "virtual flow, bandwidth",
    "as each row says",
    kind="table",
)
def readings(settings: Settings) -> Made:
    """Compare all readings of FiConn's traffic-aware routing with the claims on Fig. 6 to 9."""
    return joint_table(
        {reading: _claims(settings, reading) for reading in READINGS_OF_TAR},
        TAKEN,
        notes(simulate_flow_draws(settings, "random"), settings)[:2],
        [LIVE],
    )


def _claims(settings: Settings, reading: str) -> ClaimsByFigure:
    random, burst = (
        simulate_flow_draws(settings, traffic, reading) for traffic in ("random", "burst")
    )
    return {
        "Fig. 6": fig6_claims(random),
        "Fig. 7": path_length_claims(random, "random"),
        "Fig. 8": fig8_claims(burst),
        "Fig. 9": path_length_claims(burst, "burst"),
    }
