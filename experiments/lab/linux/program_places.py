"""BPF programs at the interfaces of a fabric, in the order of their priorities."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial

from pillarbox.experiments.lab.linux import cable_programs
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux import tcx
from pillarbox.hosts.linux.bpf import may_load_programs
from pillarbox.topos.base.errors import NotPermittedError, PillarboxError, require

# Programs without which frames take the longer way through bridges and shapers.
POSTPONABLE = (cable_programs.OWN, cable_programs.STRAIGHT_ON)


def classic_filter_of(program: bytes, deed: str) -> bytes:
    """Return the options of a program's classic filter; raise NotPermittedError if it has none."""
    classic = program.classic if isinstance(program, cable_programs.CableProgram) else b""
    require(
        bool(classic), f"cannot {deed}: this needs eBPF, and so root: use sudo", NotPermittedError
    )
    return classic


class InterfacePrograms:
    """BPF programs at interfaces of a lab's switches, attached by tc filters or tcx.

    Parameters
    ----------
    send : callable
        Sends rtnetlink requests, immediately or with the open batch.
    afterwards : callable
        Calls a function after all earlier requests were sent.
    """

    def __init__(
        self, send: Callable[..., None], afterwards: Callable[[Callable[[], object]], None]
    ) -> None:
        self._send, self._afterwards = send, afterwards
        # indexes of interfaces that have a clsact (hook for BPF programs)
        self._hooked: set[int] = set()
        # Attached BPF programs (descriptors by priority), for each interface and direction.
        self._attached: dict[tuple[int, int], dict[int, int]] = {}
        # Postponed attachments: interface and direction, priority, program (descriptor), purpose.
        self._postponed: list[tuple[cable_programs.CableTap, int, int, str]] = []
        self._postpones = False

    @cached_property
    def by_filters(self) -> bool:
        """Whether tc filters, instead of tcx, call the lab's BPF programs at interfaces."""
        return not tcx.detaches_fast()

    def run(
        self, program: bytes, taps: Iterable[cable_programs.CableTap], priority: int, deed: str
    ) -> None:
        """Load a BPF program and attach it to several interfaces of cables.

        Without the right to load it, its classic filter is attached instead.
        """
        if not may_load_programs():
            classic = classic_filter_of(program, deed)
            for tap in taps:
                self._hook(tap)
                self._send(cable_programs.attach_filter(tap, priority, classic, deed))
            return
        descriptor = cable_programs.load(program)
        try:
            for tap in taps:
                self.attach(tap, priority, descriptor, deed)
        finally:
            self._afterwards(partial(os.close, descriptor))

    def attach(self, tap: cable_programs.CableTap, priority: int, program: int, deed: str) -> None:
        """Attach a loaded BPF program to an interface, replacing one of the same priority.

        The program's file may be closed `afterwards`.
        """
        if self._postpones and priority in POSTPONABLE and not self.by_filters:
            self._postponed.append((tap, priority, os.dup(program), deed))
            return
        if not self.by_filters:
            self._afterwards(partial(self._attach_by_tcx, tap, priority, program, deed))
            return
        self._hook(tap)
        self._send(cable_programs.attach(tap, priority, program, deed))

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """Postpone attachments by tcx without which no frame is lost, until `attach_postponed`.

        For each attachment the kernel waits until no processor executes the old programs: time in
        which other processes can start.
        """
        self._postpones = True
        try:
            yield
        finally:
            self._postpones = False

    def attach_postponed(self) -> None:
        """Attach the postponed programs; any thread of the fabric's namespace may do it."""
        while self._postponed:  # after an error, `close` closes the descriptors of the others
            tap, priority, program, deed = self._postponed.pop(0)
            try:
                self._attach_by_tcx(tap, priority, program, deed)
            finally:
                os.close(program)

    def _hook(self, tap: cable_programs.CableTap) -> None:
        """Create the clsact of an interface, unless it exists."""
        if tap.ifindex not in self._hooked:
            self._send(cable_programs.hook(tap))
            self._hooked.add(tap.ifindex)

    def _attach_by_tcx(
        self, tap: cable_programs.CableTap, priority: int, program: int, deed: str
    ) -> None:
        self._detach_from_tcx(tap, priority)
        attached = self._attached.setdefault((tap.ifindex, tap.hook), {})
        later = [other for other in attached if other > priority]
        before = attached[min(later)] if later else None
        try:
            tcx.attach(program, tap.ifindex, egress=tap.hook == nl.CLSACT_EGRESS, before=before)
        except OSError as error:
            raise PillarboxError(f"cannot {deed}: {error.strerror}") from None
        attached[priority] = os.dup(program)

    def detach(self, tap: cable_programs.CableTap, priority: int, deed: str) -> None:
        """Detach the BPF program of a priority from an interface, or cancel its attachment."""
        for one in [one for one in self._postponed if one[:2] == (tap, priority)]:
            self._postponed.remove(one)
            os.close(one[2])
        if self.by_filters:
            self._send(cable_programs.detach(tap, priority, deed))
        else:
            self._afterwards(partial(self._detach_from_tcx, tap, priority))

    def _detach_from_tcx(self, tap: cable_programs.CableTap, priority: int) -> None:
        program = self._attached.get((tap.ifindex, tap.hook), {}).pop(priority, None)
        if program is not None:
            with suppress(OSError):  # the kernel has detached it if the interface is deleted
                tcx.detach(program, tap.ifindex, egress=tap.hook == nl.CLSACT_EGRESS)
            os.close(program)

    def close(self) -> None:
        """Close the descriptors of all attached BPF programs, after their interfaces' deletion."""
        attached = [one for programs in self._attached.values() for one in programs.values()]
        for program in (*attached, *(program for _, _, program, _ in self._postponed)):
            os.close(program)
        self._attached, self._hooked, self._postponed = {}, set(), []
