"""Authentication of the page's requests: tokens, cookies, and the Host and Origin headers.

Each role has an address of its own, ``/PATH/?token=TOKEN``. A request for it is answered with the
token as a cookie that scripts cannot read, and the page removes the token from the address bar.
A browser sends a cookie to every port of a host. The path is random, and the cookie is restricted
to it, so that a server on another port neither receives the cookie nor overwrites it.
"""

from __future__ import annotations

import hmac
import ipaddress

from aiohttp import hdrs, web

from experiments.page.standalone import MODULES

COOKIE = "pillarbox"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# Request all modules in parallel, instead of each when another module imports it.
PRELOAD = ", ".join(f'<{name}>; rel="modulepreload"' for name in MODULES)


class Access:
    """Decides which role a request has.

    Parameters
    ----------
    tokens, paths : dict
        The token and the path of each role.
    name : str
        Host name or address that the page listens on.
    tls : bool
        Whether the page is served over HTTPS.
    """

    def __init__(
        self, tokens: dict[str, str], paths: dict[str, str], name: str, *, tls: bool
    ) -> None:
        self._tokens = {path: (role, tokens[role]) for role, path in paths.items()}
        self._name, self._tls = name, tls

    def role(self, request: web.Request) -> str:
        """Return the role that the request's token or cookie grants; raise 403 if it has none."""
        self._check_host(request)
        role, token = self._tokens.get(request.match_info.get("path", ""), ("", ""))
        by_address = request.query.get("token")
        given = request.cookies.get(COOKIE, "") if by_address is None else by_address
        if not role or not hmac.compare_digest(given.encode(errors="replace"), token.encode()):
            raise refused("this address has no valid token: open the one that Pillarbox printed")
        if by_address is None and _acts(request) and hdrs.ORIGIN not in request.headers:
            raise refused("a request with a cookie needs an Origin header, or a token instead")
        return role

    def grant(self, request: web.Request, answer: web.Response) -> None:
        """Set the cookie of the role for which the request has shown the token."""
        path = request.match_info["path"]
        _, token = self._tokens[path]
        answer.set_cookie(
            COOKIE, token, path=f"/{path}/", httponly=True, samesite="Strict", secure=self._tls
        )

    def _check_host(self, request: web.Request) -> None:
        host = request.headers.get(hdrs.HOST, "")
        if not is_own_host(host, self._name):
            raise refused("this page is reached by its address, not by another name")
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and origin != f"{'https' if self._tls else 'http'}://{host}":
            raise refused("another site's page may not ask")
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise refused("another site's page may not ask")


def _acts(request: web.Request) -> bool:
    """Tell whether a request does more than to read: browsers send an Origin header with it."""
    return request.method != hdrs.METH_GET or hdrs.UPGRADE in request.headers


def is_own_host(host: str, name: str) -> bool:
    """Return whether a Host header is an IP address, ``localhost`` or `name` (no rebound name).

    >>> is_own_host("127.0.0.1:8080", ""), is_own_host("[::1]:80", ""), is_own_host("localhost", "")
    (True, True, True)
    >>> is_own_host("rebound.example:8080", ""), is_own_host("", "")
    (False, False)
    """
    bare = host[1 : host.index("]")] if host.startswith("[") and "]" in host else host
    bare = bare if bare != host or ":" not in host else host.rpartition(":")[0]
    if bare == "localhost" or (name and bare == name):
        return True
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return False
    return True


def refused(why: str) -> web.HTTPForbidden:
    """Return the answer to a request that is not permitted; its connection ends with it."""
    answer = web.HTTPForbidden(text=f"Pillarbox: {why}.\n", headers=HEADERS)
    answer.force_close()
    return answer
