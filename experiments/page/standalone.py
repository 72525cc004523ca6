"""The page's files, and a recording as one of them that needs no other and no network.

A file that a browser opens from a disk can load no module beside it. So the modules are put one
behind the other, without their ``import`` lines and the word ``export``: they agree on all names.
The file allows itself, by the hashes of its own style and script, and nothing else whatever the
recording says.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

WEB = Path(__file__).with_name("web")
# Each after those that it imports.
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
    """Return the page's files by name."""
    names = ("page.html", "page.css", *MODULES)
    return {name: (WEB / name).read_text(encoding="utf-8") for name in names}


def standalone(recording: str, parts: dict[str, str]) -> str:
    """Return a recording, given as JSON, as one file."""
    return "".join(standalone_pieces([recording], parts))


def standalone_pieces(recording: Iterable[str], parts: dict[str, str]) -> Iterator[str]:
    """Yield the pieces of a file of a recording, given as pieces of JSON."""
    style, script = parts["page.css"], "\n".join(plain(parts[name]) for name in MODULES)
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    here = "\0"  # where the recording is: in no text of the page
    changes = (
        (
            '<link rel="stylesheet" href="page.css">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            f"<style>{style}</style>",
        ),
        (
            '<script type="module" src="app.js"></script>',
            f'<script type="application/json" id="recording">{here}</script>\n'
            f'<script type="module">{script}</script>',
        ),
    )
    page = parts["page.html"]
    for old, new in changes:
        before, found, after = page.partition(old)
        assert found, f"page.html has no {old}"
        page = before + new + after
    before, _, after = page.partition(here)
    yield before
    for piece in recording:
        yield piece.replace("<", "\\u003c")  # so that no text in it ends its element
    yield after


def plain(module: str) -> str:
    """Return a module that imports nothing and exports nothing.

    >>> plain('import { a } from "./b.js";\\nexport function c() { return a(); }')
    'function c() { return a(); }'
    """
    text = re.sub(r'^import [^;]*? from "\./[a-z]+\.js";\n', "", module, flags=re.MULTILINE)
    return re.sub(r"^export (?=function|const|class|async)", "", text, flags=re.MULTILINE)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
