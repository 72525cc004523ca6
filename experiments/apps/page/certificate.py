"""The self-signed certificate of a page that is reached over a network."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import ssl
import subprocess
from typing import NamedTuple

from pillarbox.topos.base.errors import PillarboxError

DAYS = 30  # validity of a page's TLS certificate, in days
MAKE_S = 30.0  # timeout of openssl in seconds
OPENSSL = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
OPENSSL += ["-nodes", "-sha256", "-keyout", "-", "-out", "-", "-subj", "/CN=Pillarbox"]


class Certificate(NamedTuple):
    """A TLS certificate and its private key, in PEM format."""

    certificate: str
    key: str

    @property
    def fingerprint(self) -> str:
        """SHA-256 fingerprint of the certificate, in the format that browsers show."""
        return fingerprint_of(ssl.PEM_cert_to_DER_cert(self.certificate))


def made_for(name: str) -> Certificate:
    """Return a new self-signed certificate for a host name or an IP address."""
    try:
        ipaddress.ip_address(name)
        kind = "IP"
    except ValueError:
        kind = "DNS"
    command = [*OPENSSL, "-days", str(DAYS), "-addext", f"subjectAltName={kind}:{name}"]
    try:
        made = subprocess.run(
            command, capture_output=True, check=True, text=True, timeout=MAKE_S, cwd="/"
        )
    except FileNotFoundError:
        raise PillarboxError(
            "TLS needs openssl: apt-get install openssl, or add --plain-http"
        ) from None
    except (OSError, subprocess.SubprocessError) as error:
        why = (getattr(error, "stderr", None) or str(error)).strip().rpartition("\n")[2]
        raise PillarboxError(f"openssl cannot create a certificate for {name}: {why}") from None
    key, begin, certificate = made.stdout.partition("-----BEGIN CERTIFICATE")
    return Certificate(begin + certificate.strip(), key)


def fingerprint_of(certificate: bytes) -> str:
    """Return the SHA-256 fingerprint of a certificate in DER format.

    >>> fingerprint_of(b"")[:14]
    'E3:B0:C4:42:98'
    """
    return hashlib.sha256(certificate).digest().hex(":").upper()


def server_context(pem: str) -> ssl.SSLContext:
    """Return the TLS settings of a server; the private key stays in memory."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    inside = os.memfd_create("certificate")
    try:
        os.write(inside, pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{inside}")
    finally:
        os.close(inside)
    return context


def client_context(certificate: str) -> ssl.SSLContext:
    """Return the TLS settings of a client that trusts only a given certificate in PEM format."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=certificate)
    return context
