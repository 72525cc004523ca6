"""A page that others on the network can reach: TLS, what is printed, and terminals."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from pillarbox.experiments.apps.page import certificate, process
from pillarbox.experiments.apps.page.certificate import client_context, fingerprint_of, made_for
from pillarbox.experiments.apps.page.process import Page, PageSocket
from pillarbox.experiments.cli.commands.page import _save_recording
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.apps.page.test_page_server import Lab
from tests.harness.chromium import CHROMIUM, browser
from tests.harness.page_client import watching
from tests.security.pages import MOST_SAMPLES, attacked, connected, flood, request_for


def on_network(*, terminals: bool = False) -> PageSocket:
    """Return a door as on a network's address, on the loopback."""
    made = made_for("127.0.0.1")
    return process.opened()._replace(on_loopback=False, terminals=terminals, certificate=made)


def test_what_is_printed_says_what_is_exposed() -> None:
    cases = [
        ({}, "127.0.0.1:0", (), ("https", "SHA-256", "plain", "terminals")),
        ({}, "localhost", (), ("https", "SHA-256", "plain", "terminals")),
        ({}, "0.0.0.0:0", ("https://", "SHA-256 of its certificate"), ("plain", "terminals")),
        ({}, "[::]:0", ("https://[::]:",), ("plain", "terminals")),
        ({"plain_http": True}, "0.0.0.0", ("http://", "operate the lab"), ("SHA-256",)),
        ({"terminals": True}, "0.0.0.0", ("https://", "run programs"), ("plain",)),
    ]
    for how, listen, there, not_there in cases:
        door = process.opened(listen, **how)
        door.socket.close()
        text = process.welcome(door)
        assert all(words in text for words in there), text
        assert not any(words in text for words in not_there), text
        loopback = "0.0.0.0" not in listen and "::" not in listen
        assert door.terminals == (loopback or "terminals" in how)


def test_without_openssl_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PillarboxError, match="apt-get install openssl, or add --plain-http"):
        process.opened("0.0.0.0")
    monkeypatch.undo()
    monkeypatch.setattr(certificate, "OPENSSL", ["openssl", "nothing"])
    with pytest.raises(PillarboxError, match="openssl cannot create a certificate for 192"):
        made_for("192.0.2.7")


def test_tls_by_a_certificate_whose_fingerprint_is_known(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def attack(door: PageSocket, page: Page) -> None:
        assert door.certificate
        printed = door.certificate.fingerprint
        blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        with connected(door) as one, blind.wrap_socket(one) as shown:
            assert fingerprint_of(shown.getpeercert(binary_form=True) or b"") == printed
            assert (shown.version() or "") >= "TLSv1.2"
            shown.sendall(request_for(door, "watch", "").encode())
            head = shown.recv(4096).decode()
            assert head.startswith("HTTP/1.1 200") and "; Secure" in head
        with connected(door, request_for(door, "operate", "")) as plain:
            assert b"200" not in plain.recv(4096)  # the token alone opens nothing without TLS
        async with watching(door.url("operate"), printed) as operator:
            assert operator.role == "operate"
            with pytest.raises(PillarboxError, match="the student's name is not valid"):
                await operator.grade("1", "", "")
        for trusted in ("", printed[:-2] + ("00" if printed[-2:] != "00" else "01")):
            with pytest.raises(PillarboxError, match="refuses the connection"):
                async with watching(door.url("operate"), trusted):
                    pass
        with pytest.raises(PillarboxError, match="is not a SHA-256 fingerprint"):
            async with watching(door.url("operate"), "none"):
                pass
        _save_recording(*process.address_in(tmp_path), tmp_path / "saved.html")
        assert "dcell" in (tmp_path / "saved.html").read_text()
        other = made_for("127.0.0.1").certificate
        with pytest.raises(PillarboxError, match="does not answer"):
            _save_recording(door.url("operate"), other, tmp_path / "none.html")

    attacked(attack, tmp_path, door=on_network())
    said = capfd.readouterr().err
    assert "Traceback" not in said and len(said.splitlines()) <= 1, said


def test_handshakes_that_are_not_finished(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lab = Lab()

    async def attack(door: PageSocket, page: Page) -> None:
        assert door.certificate
        with flood(door, 200), flood(door, 200, "\x16\x03\x01"), flood(door, 200, "GET / HTTP/1.1"):
            before = lab.samples
            async with watching(door.url("operate"), door.certificate.fingerprint) as operator:
                assert lab.samples - before < MOST_SAMPLES
                await operator.heard("sample")

    attacked(attack, tmp_path, lab, on_network())
    said = capfd.readouterr().err
    assert "Traceback" not in said and len(said.splitlines()) <= 1, said


def test_a_terminal_needs_to_be_permitted(tmp_path: Path) -> None:
    def opening(door: PageSocket, why: str) -> None:
        async def attack(_door: PageSocket, page: Page) -> None:
            assert door.certificate
            async with watching(door.url("operate"), door.certificate.fingerprint) as operator:
                with pytest.raises(PillarboxError, match=why):
                    await operator.do("shell", "0.0", "24", "80")

        attacked(attack, tmp_path, door=door)

    opening(on_network(), "start the page with --terminals")
    opening(on_network(terminals=True), "the lab is starting or ending")  # there is none here


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium: apt-get install chromium")
def test_a_browser_over_tls(tmp_path: Path) -> None:
    async def attack(door: PageSocket, page: Page) -> None:
        async with browser(tmp_path / "chromium") as tab:
            await tab.send("Security.setIgnoreCertificateErrors", ignore=True)
            await tab.open(door.url("operate"))
            await tab.until("document.getElementById('status').textContent === 'live'")
            assert await tab.value("location.protocol + location.search") == "https:"
            assert tab.complaints == []

    attacked(attack, tmp_path, door=on_network())


def test_a_client_trusts_one_certificate_only() -> None:
    first, second = made_for("127.0.0.1"), made_for("lab.example")
    assert first.fingerprint != second.fingerprint
    assert first.key != second.key and "PRIVATE KEY" not in first.certificate
    [known] = client_context(first.certificate).get_ca_certs(binary_form=True)
    assert fingerprint_of(known) == first.fingerprint
