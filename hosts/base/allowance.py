"""Token bucket: rate limit with an average rate and a burst size."""

from __future__ import annotations


class Allowance:
    """Rate limit by a token bucket: `at_once` tokens, refilled at `per_s` tokens per second.

    >>> allowance = Allowance(per_s=2.0, at_once=3, now=0.0)
    >>> [allowance.take(0.0) for _ in range(4)], allowance.take(0.5), allowance.take(0.5)
    ([True, True, True, False], True, False)
    """

    def __init__(self, per_s: float, at_once: int, now: float) -> None:
        self.per_s, self.at_once = per_s, at_once
        self._left, self._at_s = float(at_once), now

    def take(self, now: float) -> bool:
        """Take a token from the rate limit's bucket; return False if the bucket is empty."""
        self._left = min(self.at_once, self._left + max(0.0, now - self._at_s) * self.per_s)
        self._at_s = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
