"""Requests to the kernel in batches: order, refusals with their reasons, news of carriers."""

from __future__ import annotations

import errno
import os
import select
import subprocess
from typing import Any

import pytest

from pillarbox.hosts.linux import netlink
from pillarbox.hosts.linux import netlink_numbers as nl

pytestmark = pytest.mark.root


def modules() -> Any:
    from pillarbox.experiments.lab.linux import link_requests, namespaces

    return namespaces, link_requests


def test_a_batch_is_carried_out_in_order_beyond_one_system_call() -> None:
    namespaces, link_requests = modules()
    home = namespaces.fabric()
    count = 3 * netlink.CHUNK_BYTES // 100
    home.send(link_requests.bridge("b", 100))
    home.send(
        *(link_requests.add_address(100, f"10.{i >> 8}.{i & 255}.1", 24) for i in range(count))
    )
    home.send(
        *(link_requests.delete_address(100, f"10.{i >> 8}.{i & 255}.1", 24) for i in range(count))
    )
    with pytest.raises(netlink.NetlinkError):
        home.send(link_requests.delete_address(100, "10.0.0.1", 24))


def test_the_last_blocks_of_a_batch_come_after_all_others_the_newest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    namespaces, _ = modules()
    home, far = namespaces.fabric(), namespaces.Namespace()
    sent: list[str] = []
    for one in (home, far):
        monkeypatch.setattr(one.netlink, "send", lambda asked, _=(): sent.extend(asked))

    def fill_batch() -> None:
        with home.batch():
            for each, there in (("first", home), ("second", far), ("third", home)):
                with home.last_in_batch():
                    there.send(each)
            home.send("usual")
            assert not sent
            assert "fail" not in failing

    failing: list[str] = []
    fill_batch()
    assert sent == ["usual", "third", "second", "first"]
    sent.clear()
    failing.append("fail")
    with pytest.raises(AssertionError):
        fill_batch()
    with home.batch():
        home.send("after a failure")
    assert sent == ["after a failure"]
    with home.last_in_batch():
        home.send("without a batch")
        assert sent[1:] == ["without a batch"]


def test_the_first_refusal_is_told_and_the_rest_of_a_batch_made() -> None:
    namespaces, link_requests = modules()
    home = namespaces.fabric()
    with pytest.raises(netlink.NetlinkError, match="make the switch lo: File exists") as told:
        home.send(
            link_requests.bridge("first", 100),
            link_requests.bridge("lo", 101),
            link_requests.change(99, up=True),
            link_requests.bridge("last", 102),
        )
    assert told.value.errno == errno.EEXIST
    assert [link.name for link in home.netlink.links()] == ["lo", "first", "last"]
    home.send(link_requests.delete(99), ignore={errno.ENODEV})


def test_the_kernels_own_words_are_passed_on() -> None:
    namespaces, _ = modules()
    body = netlink.interface() + netlink.attribute(nl.IFLA_MTU, b"\0")
    broken = netlink.Message(nl.RTM_NEWLINK, 0, body, "break something")
    with pytest.raises(netlink.NetlinkError, match=r"refused to break something: .* \(.+\)"):
        namespaces.fabric().send(broken)


def test_a_batch_that_fails_before_its_end_asks_nothing() -> None:
    namespaces, link_requests = modules()
    home = namespaces.fabric()
    done: list[str] = []

    def half_a_batch() -> None:
        with home.batch():
            home.send(link_requests.bridge("never", 100))
            home.call_after_requests(lambda: done.append("files closed"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half_a_batch()
    assert [link.name for link in home.netlink.links()] == ["lo"]
    assert done == ["files closed"]
    home.send(link_requests.bridge("now", 100))
    assert home.netlink.links()[-1].name == "now"


def test_links_are_told_with_all_that_is_asked_about_them() -> None:
    namespaces, link_requests = modules()
    home, far = namespaces.fabric(), namespaces.Namespace()
    near = link_requests.End("near", 100, home.descriptor, "02:00:00:00:00:01")
    peer = link_requests.End("far", 101, far.descriptor, "02:00:00:00:00:02")
    home.send(link_requests.bridge("b", 7, group=5))
    home.send(link_requests.cable(near, peer, mtu=1600, group=5, bridge=7))
    found = {link.name: link for link in home.netlink.links()}
    assert found["near"] == (100, "near", False, False, 7, 5, "02:00:00:00:00:01", 1600)
    assert far.netlink.links()[-1][:4] == (101, "far", False, False)
    home.send(link_requests.delete_group(5))
    assert [link.name for link in home.netlink.links()] == ["lo"]


def test_links_are_deleted_at_exit_unless_a_lab_has_deleted_them() -> None:
    namespaces, link_requests = modules()
    home = namespaces.fabric()

    def sent_at_exit() -> bool:
        sent: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(home.netlink, "send", lambda *asked, **_: sent.append(asked))
            home._delete_links_at_exit(os.getpid())
        return bool(sent)

    for _ in range(2):  # a process may have a second lab
        home.send(link_requests.bridge("b", home.new_index(), group=home.group))
        assert sent_at_exit()
        home.delete_links()
        assert not sent_at_exit()
        assert [link.name for link in home.netlink.links()] == ["lo"]


def test_news_of_carriers_come_in_order_and_a_deletion_is_one() -> None:
    from pillarbox.hosts.live.devices import CarrierEvents

    namespaces, link_requests = modules()
    home, far = namespaces.fabric(), namespaces.Namespace()
    with far:
        events = CarrierEvents()
    assert list(events.pending()) == []

    def wait_for(up: bool) -> None:
        """Wait for the next change of state, which must be this."""
        while select.select([events.socket], [], [], 20)[0]:
            news = list(events.pending())
            assert {index for index, _ in news} == {101}
            if up in [live for _, live in news]:
                return
        raise AssertionError(f"no news of far going {'up' if up else 'down'}")

    near = link_requests.End("near", 100, home.descriptor)
    home.send(link_requests.cable(near, link_requests.End("far", 101, far.descriptor), mtu=1500))
    far.send(link_requests.change(101, up=True))
    wait_for(False)  # one end does not make a live cable
    home.send(link_requests.change(100, up=True))
    wait_for(True)
    home.send(link_requests.change(100, up=False))
    wait_for(False)
    home.send(link_requests.change(100, up=True))
    wait_for(True)
    home.send(link_requests.delete(100))
    wait_for(False)
    events.socket.close()


def test_addresses_routes_and_neighbours_are_those_asked_for() -> None:
    namespaces, link_requests = modules()
    home, far = namespaces.fabric(), namespaces.Namespace()
    near = link_requests.End("near", 100, home.descriptor)
    home.send(
        link_requests.cable(near, link_requests.End("far", 101, far.descriptor), mtu=1500),
        link_requests.change(100, up=True),
        link_requests.add_address(100, "10.1.0.1", 24),
        link_requests.add_route("10.2.0.0", 16, 100, gateway="10.1.0.9"),
        link_requests.add_route("10.3.0.0", 16, 100),
        link_requests.add_neighbour(100, "10.1.0.9", "02:00:00:00:00:09"),
    )

    def shown(*command: str) -> str:
        said = subprocess.run(["ip", *command], check=True, capture_output=True, text=True)
        return said.stdout

    assert "inet 10.1.0.1/24 brd 10.1.0.255" in shown("-4", "addr", "show", "dev", "near")
    routes = shown("route")
    assert "10.2.0.0/16 via 10.1.0.9 dev near proto static" in routes
    assert "10.3.0.0/16 dev near proto static scope link" in routes
    assert "10.1.0.9 lladdr 02:00:00:00:00:09 PERMANENT" in shown("neigh", "show", "dev", "near")
