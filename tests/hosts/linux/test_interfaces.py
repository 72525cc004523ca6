"""Changes at interfaces: the kernel's own files and routes say that they were made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pillarbox.hosts.linux.calls import in_new_namespace
from pillarbox.hosts.linux.interfaces import ACCEPT_LOCAL, RP_FILTER, InterfaceChanges

pytestmark = pytest.mark.root
LOOPBACK = 1


def test_changes_are_made_together_and_in_their_order() -> None:
    changes = InterfaceChanges()
    changes.set_link(LOOPBACK, {RP_FILTER: 1, ACCEPT_LOCAL: 1}, mtu=9000, up=True)
    changes.add_address(LOOPBACK, 0x0A000007, 8)
    changes.route_everything_to(LOOPBACK)
    with in_new_namespace():
        assert _setting("rp_filter") == "0"
        changes.apply()
        assert (_setting("rp_filter"), _setting("accept_local")) == ("1", "1")
        said = _said("ip", "-o", "address", "show", "dev", "lo")
        assert "inet 10.0.0.7/8 scope global lo" in said
        assert "mtu 9000" in _said("ip", "-o", "link", "show", "dev", "lo")
        assert "default dev lo proto static scope link" in _said("ip", "route")
        changes.apply()  # nothing is left to make: it would be there already


def test_a_refused_change_is_named_and_those_behind_it_are_made() -> None:
    changes = InterfaceChanges()
    changes.set_link(LOOPBACK, {RP_FILTER: 1})
    changes.set_link(4000, {}, up=True)
    changes.set_link(LOOPBACK, {ACCEPT_LOCAL: 1})
    with in_new_namespace():
        with pytest.raises(OSError, match="refused to set up interface 4000: No such device"):
            changes.apply()
        assert (_setting("rp_filter"), _setting("accept_local")) == ("1", "1")


def _setting(name: str) -> str:
    return Path(f"/proc/sys/net/ipv4/conf/lo/{name}").read_text().strip()


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
