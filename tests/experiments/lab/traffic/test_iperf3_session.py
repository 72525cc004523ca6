"""A flow of iperf3 that ends while it is asked how far it is."""

from __future__ import annotations

import socket

from pillarbox.experiments.lab.traffic.iperf3_session import Iperf3Session
from pillarbox.experiments.models.workloads.flows import Flow, FlowResult


class Leaving(socket.socket):
    """A connection whose flow ends as soon as somebody uses it."""

    session: Iperf3Session | None = None

    def fileno(self) -> int:
        number = super().fileno()
        session, self.session = self.session, None
        if session:
            session.close_files()
        return number


def test_a_flow_that_ends_while_it_is_asked_keeps_what_was_read() -> None:
    flow = Flow(0, 0, 1, volume_bytes=10)
    session = Iperf3Session(flow, FlowResult(flow, "iperf3"), last_read=7)
    session.stream = stream = Leaving(socket.AF_INET, socket.SOCK_STREAM)
    stream.session = session
    assert session.bytes_read() == 7
    assert session.stream is None
    session.server_says.close()
    session.client_says.close()
