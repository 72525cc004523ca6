"""Which programs stand where at the interfaces of a fabric, in the order of their priorities."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property, partial

from experiments.linux import bpf
from hosts.linux import tcx
from topos.base.errors import PillarboxError


class Places:
    """The programs at a fabric's interfaces; filters call them, or the interfaces by themselves.

    Parameters
    ----------
    send : callable
        Makes requests of rtnetlink, now or with the batch that is open.
    afterwards : callable
        Calls a function when all requests so far were made.
    """

    def __init__(
        self, send: Callable[..., None], afterwards: Callable[[Callable[[], object]], None]
    ) -> None:
        self._send, self._afterwards = send, afterwards
        self._hooked: set[int] = set()  # interfaces that filters can be at
        # Programs by their priorities, by interface and direction.
        self._there: dict[tuple[int, int], dict[int, int]] = {}

    @cached_property
    def by_filters(self) -> bool:
        """Whether filters of traffic control call the programs (see `hosts.linux.tcx`)."""
        return not tcx.is_quick()

    def run(self, program: bytes, taps: Iterable[bpf.Tap], priority: int, deed: str) -> None:
        """Load a program and let it stand at these places."""
        descriptor = bpf.load(program)
        try:
            for tap in taps:
                self.put(tap, priority, descriptor, deed)
        finally:
            self._afterwards(partial(os.close, descriptor))

    def put(self, tap: bpf.Tap, priority: int, program: int, deed: str) -> None:
        """Let a program stand there; another of that priority goes.

        Its file may be closed `afterwards`.
        """
        if not self.by_filters:
            self._afterwards(partial(self._put, tap, priority, program, deed))
            return
        if tap.ifindex not in self._hooked:
            self._send(bpf.hook(tap))
            self._hooked.add(tap.ifindex)
        self._send(bpf.attach(tap, priority, program, deed))

    def _put(self, tap: bpf.Tap, priority: int, program: int, deed: str) -> None:
        self._take(tap, priority)
        there = self._there.setdefault((tap.ifindex, tap.hook), {})
        later = [other for other in there if other > priority]
        before = there[min(later)] if later else None
        try:
            tcx.attach(program, tap.ifindex, egress=tap.hook == bpf.EGRESS, before=before)
        except OSError as error:
            raise PillarboxError(f"cannot {deed}: {error.strerror}") from None
        there[priority] = os.dup(program)

    def take(self, tap: bpf.Tap, priority: int, deed: str) -> None:
        """Take the program of that priority away."""
        if self.by_filters:
            self._send(bpf.detach(tap, priority, deed))
        else:
            self._afterwards(partial(self._take, tap, priority))

    def _take(self, tap: bpf.Tap, priority: int) -> None:
        program = self._there.get((tap.ifindex, tap.hook), {}).pop(priority, None)
        if program is not None:
            with suppress(OSError):  # the interface may be gone
                tcx.detach(program, tap.ifindex, egress=tap.hook == bpf.EGRESS)
            os.close(program)

    def close(self) -> None:
        """Forget all: the interfaces are gone."""
        for program in (program for there in self._there.values() for program in there.values()):
            os.close(program)
        self._there, self._hooked = {}, set()
