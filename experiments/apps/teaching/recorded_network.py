"""A student's network, recorded from the answers of its class about every port.

The class runs only in a sealed child. Its answers are recorded once, so that the network can be
compared, searched and built in memory. A cable counts if both of its ends report the same cable and
one end is a server. All other cables are left out, and `contradictions` contains the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.grading_engine import Work
from pillarbox.experiments.apps.teaching.sealed_router import is_integer_below
from pillarbox.topos.base.polymorphic import NOTHING, Number
from pillarbox.topos.base.topology import Bound, Plug, Topology

MOST = {"servers": 64, "switches": 64, "ports": 8, "switch_ports": 32, "cables": 1024}
MOST_DIGITS, MOST_VALUES = 8, 1 << 31  # upper bounds of an address's length and of its digits
MOST_LEVELS = 64
UNPLUGGED = Plug(NOTHING, 0, 0)

End = tuple[int, int]  # node, port


class RecordedNetwork(Topology):
    """Network recorded from the answers of a student's topology class in a sealed child.

    Parameters
    ----------
    work : Work
        Student's file under test, which contains the class.
    spec : str
        Spec of the network; its numbers are the arguments of the class.

    Raises
    ------
    StudentError
        If the class reports no valid size.
    """

    def __init__(self, work: Work, spec: str) -> None:
        super().__init__()
        self.spec = spec
        self.servers, self.switches, self.ports, self.switch_ports, self.cables = (
            _reported_count(work, spec, name)
            for name in ("servers", "switches", "ports", "switch_ports", "cables")
        )
        self.contradictions: dict[int, str] = {}  # first contradiction of the cables' ends, by node
        self.misaddressed: dict[int, str] = {}  # error of a server's address, by server
        said = {end: self._reported_plug(work, *end) for end in self._ends()}
        self.claimed_cables = self.cables
        agreed = {end: self._confirmed_plug(said, end) for end in said}
        self.cables = sum(plug != UNPLUGGED for plug in agreed.values()) // 2
        shape = (self.nodes, max(self.ports, self.switch_ports), 3)
        self._plugs = numpy.full(shape, NOTHING, numpy.int64)
        for (node, port), plug in agreed.items():
            self._plugs[node, port] = plug
        self._digits = numpy.array(self._addresses(work))

    # -- asking --------------------------------------------------------------------------------

    def _ends(self) -> list[End]:
        return [(node, port) for node in range(self.nodes) for port in range(self.ports_of(node))]

    def _reported_plug(self, work: Work, node: int, port: int) -> Plug:
        """Ask the student's topology class for a port's plug; return UNPLUGGED if it is invalid."""
        try:
            if node < self.servers:
                plug = work.attribute("server_plug", node, port, network=self.spec)
            else:
                plug = work.attribute("switch_plug", node - self.servers, port, network=self.spec)
        except StudentError as mistake:
            self._record_contradiction(node, f"port {port}: {mistake}")
            return UNPLUGGED
        if isinstance(plug, list) and len(plug) == 3:
            if plug[0] == NOTHING:
                return UNPLUGGED
            far, there, level = plug
            known = is_integer_below(far, self.nodes) and is_integer_below(
                there, self.ports_of(far)
            )
            if known and is_integer_below(level, MOST_LEVELS):
                return Plug(far, there, level)
        self._record_contradiction(node, f"port {port} leads to {plug!r:.50}, which does not exist")
        return UNPLUGGED

    def _confirmed_plug(self, said: dict[End, Plug], end: End) -> Plug:
        """Return the far end of a port's cable, UNPLUGGED unless both ends report the cable."""
        plug = said[end]
        if plug == UNPLUGGED:
            return plug
        if end[0] >= self.servers <= plug.node:
            self._record_contradiction(
                end[0], f"port {end[1]} leads to a switch; here only servers relay"
            )
            return UNPLUGGED
        if end[0] == plug.node:
            self._record_contradiction(end[0], f"port {end[1]} leads to itself")
            return UNPLUGGED
        if said[plug.node, plug.port] == (*end, plug.level):
            return plug
        there = f"port {plug.port} of {self.node_name(plug.node)}"
        self._record_contradiction(
            end[0], f"port {end[1]} leads to {there}, which does not lead back"
        )
        return UNPLUGGED

    def _record_contradiction(self, node: int, what: str) -> None:
        self.contradictions.setdefault(node, f"{self.node_name(node)} {what}")

    def _addresses(self, work: Work) -> list[list[int]]:
        """Return the address digits of all servers, or all numbers if any address is invalid."""
        radices = work.attribute("radices", network=self.spec)
        rows: list[list[int]] = []
        for server in range(self.servers):
            try:
                rows.append(self._address(work, server, radices, rows))
            except StudentError as mistake:
                self.misaddressed[server] = str(mistake)
        if self.misaddressed:
            return [[server] for server in range(self.servers)]
        return rows

    def _address(
        self, work: Work, server: int, radices: Any, taken: Sequence[list[int]]
    ) -> list[int]:
        """Return a server's address digits; raise StudentError unless they are valid and unique."""
        digits = work.attribute("digits", server, network=self.spec)
        if not _valid_digits(digits, radices):
            raise StudentError(f"digits({server}) is {digits!r:.40}, and radices() {radices!r:.40}")
        if digits in taken:
            raise StudentError(f"digits({server}) is {digits}, which another server has too")
        again = work.attribute("server_at", digits, network=self.spec)
        if not is_integer_below(again, self.servers) or again != server:
            raise StudentError(f"server_at({digits}) is {again!r:.60}, not {server}")
        return list(digits)

    # -- answering -----------------------------------------------------------------------------

    def server_plug(self, server: Number, port: int) -> Plug:
        """Return the recorded plug of a server's port if both ends agree."""
        row = self._plugs[server, port]
        return Plug(*map(int, row)) if row.ndim == 1 else Plug(*row.T)

    def switch_plug(self, switch: Number, port: int) -> Plug:
        """Return the recorded plug of a switch's port if both ends agree."""
        return self.server_plug(self.servers + switch, port)

    def digits(self, server: Number) -> tuple[Any, ...]:
        """Return a server's recorded address digits, or its number if any address is invalid."""
        row = self._digits[server]
        return tuple(map(int, row)) if row.ndim == 1 else tuple(row.T)

    def server_at(self, digits: Sequence[Number]) -> Any:
        """Return the server with these address digits, -1 if no server has this address."""
        asked = numpy.stack(numpy.broadcast_arrays(*digits), axis=-1)
        same = (self._digits == asked[..., None, :]).all(axis=-1)
        found = numpy.where(same.any(axis=-1), same.argmax(axis=-1), NOTHING)
        return found if found.ndim else int(found)

    def radices(self) -> tuple[int, ...]:
        """Return the radix of each address digit: the largest recorded digit plus 1."""
        return tuple(int(largest) + 1 for largest in self._digits.max(axis=0))

    def switch_label(self, switch: int) -> str:
        """Return the name of a switch."""
        return f"s{switch}"

    def diameter_bound(self) -> Bound:
        """Return no bound: the bounds of the student's class are checked separately."""
        return Bound(None, "not asked", "recorded")

    bisection = disjoint_paths = diameter_bound


def _reported_count(work: Work, spec: str, name: str) -> int:
    """Return a count that the student's class reports, such as its number of servers."""
    count = work.attribute(name, network=spec)
    least = {"servers": 2, "ports": 1}.get(name, 0)
    if not is_integer_below(count, MOST[name] + 1) or count < least:
        wanted = f"{least} to {MOST[name]} can be graded"
        raise StudentError(f"{name} of {spec} is {count!r:.30}: {wanted}")
    return int(count)


def _valid_digits(digits: object, radices: object) -> bool:
    """Return True if address digits are below their radices."""
    if not isinstance(digits, list) or not isinstance(radices, list):
        return False
    if not 0 < len(digits) == len(radices) <= MOST_DIGITS:
        return False
    pairs = zip(digits, radices, strict=True)
    return all(
        is_integer_below(radix, MOST_VALUES) and is_integer_below(digit, radix)
        for digit, radix in pairs
    )
