"""Authentication of the page's requests: tokens, cookies, and the Host and Origin headers.

Each role has a separate address, ``/PATH/?token=TOKEN``. The response to this address sets the
token as a cookie that scripts cannot read, and the page removes the token from the address bar.
A browser sends a cookie to every port of a host. The path is random, and the cookie is restricted
to the path: a server on another port neither receives the cookie nor overwrites it.
"""

from __future__ import annotations

import hmac
import ipaddress

from aiohttp import hdrs, web

from pillarbox.experiments.apps.page.standalone import MODULES

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
# HTTP Link header that makes browsers load all JavaScript modules in parallel.
PRELOAD = ", ".join(f'<{name}>; rel="modulepreload"' for name in MODULES)


class Access:
    """Authenticates HTTP requests to the page and determines the role of each request.

    Parameters
    ----------
    tokens, paths : dict
        Token and URL path of each role.
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
        """Return the role that a request's token or cookie grants; raise HTTP 403 without one."""
        self._check_host(request)
        role, token = self._tokens.get(request.match_info.get("path", ""), ("", ""))
        by_address = request.query.get("token")
        given = request.cookies.get(COOKIE, "") if by_address is None else by_address
        if not role or not hmac.compare_digest(given.encode(errors="replace"), token.encode()):
            raise forbidden(
                "this address has no valid token: open the address that Pillarbox printed"
            )
        if (
            by_address is None
            and _has_origin_header(request)
            and hdrs.ORIGIN not in request.headers
        ):
            raise forbidden(
                "a request with a cookie needs an Origin header: add it, or send the token"
            )
        return role

    def grant(self, request: web.Request, answer: web.Response) -> None:
        """Set the access cookie of a role in the response to a request with the role's token."""
        path = request.match_info["path"]
        _, token = self._tokens[path]
        answer.set_cookie(
            COOKIE, token, path=f"/{path}/", httponly=True, samesite="Strict", secure=self._tls
        )

    def _check_host(self, request: web.Request) -> None:
        host = request.headers.get(hdrs.HOST, "")
        if not is_own_host(host, self._name):
            raise forbidden("the Host header is not the page's address: open the printed address")
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and origin != f"{'https' if self._tls else 'http'}://{host}":
            raise forbidden("cross-origin requests are refused: open the printed address")
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise forbidden("cross-site requests are refused: open the printed address")


def _has_origin_header(request: web.Request) -> bool:
    """Return True for requests to which browsers add an Origin header: not GET, or WebSocket."""
    return request.method != hdrs.METH_GET or hdrs.UPGRADE in request.headers


def is_own_host(host: str, name: str) -> bool:
    """Return True if a Host header is an IP address, ``localhost`` or the page's host name.

    Other names are refused, as protection against DNS rebinding.

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


def forbidden(why: str) -> web.HTTPForbidden:
    """Return the 403 response to a forbidden request; the connection is closed after it."""
    answer = web.HTTPForbidden(text=f"Pillarbox: {why}.\n", headers=HEADERS)
    answer.force_close()
    return answer
