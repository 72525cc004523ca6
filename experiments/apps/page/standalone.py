"""The page's files, and a recording as one HTML file that needs no other file and no network.

A browser does not load modules for a page that was opened from a disk. So the modules are
concatenated without their ``import`` lines and the word ``export``: all names are unique. The
file's Content-Security-Policy permits only this style and script, by their hashes, whatever text
the recording contains.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

WEB = Path(__file__).with_name("web")
# The page's JavaScript modules, in the order of their imports.
MODULES = (
    *("time.js", "wire.js", "shapes.js", "folds.js", "picture.js", "events.js", "plot.js"),
    *("panel.js", "traffic.js", "screen.js", "terminal.js", "sheet.js", "app.js"),
)
CONTENT_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "json": "application/json",
}


def files() -> dict[str, str]:
    """Return the contents of the page's files by file name."""
    names = ("page.html", "page.css", *MODULES)
    return {name: (WEB / name).read_text(encoding="utf-8") for name in names}


def standalone(recording: str, parts: dict[str, str]) -> str:
    """Return a standalone HTML page of a recording, which is given as JSON."""
    return "".join(standalone_pieces([recording], parts))


def standalone_pieces(recording: Iterable[str], parts: dict[str, str]) -> Iterator[str]:
    """Yield the pieces of a recording's standalone HTML page; the recording is pieces of JSON."""
    style, script = parts["page.css"], "\n".join(plain(parts[name]) for name in MODULES)
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_csp_hash(style)}'; "
        f"script-src '{_csp_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    placeholder = "\0"  # marks the recording's place in the HTML page
    changes = (
        (
            '<link rel="stylesheet" href="page.css">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            f"<style>{style}</style>",
        ),
        (
            '<script type="module" src="app.js"></script>',
            f'<script type="application/json" id="recording">{placeholder}</script>\n'
            f'<script type="module">{script}</script>',
        ),
    )
    page = parts["page.html"]
    for old, new in changes:
        before, found, after = page.partition(old)
        assert found, f"page.html has no {old}"
        page = before + new + after
    before, _, after = page.partition(placeholder)
    yield before
    for piece in recording:
        yield piece.replace("<", "\\u003c")  # "</script>" in the JSON would end the script element
    yield after


def plain(module: str) -> str:
    """Return a JavaScript module's text without its imports and exports.

    >>> plain('import { a } from "./b.js";\\nexport function c() { return a(); }')
    'function c() { return a(); }'
    """
    text = re.sub(r'^import [^;]*? from "\./[a-z]+\.js";\n', "", module, flags=re.MULTILINE)
    return re.sub(r"^export (?=function|const|class|async)", "", text, flags=re.MULTILINE)


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
