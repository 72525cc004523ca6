"""Shows the doctests and the pictures of docstrings as what they are, where they stand in prose.

Markdown would take ``>>>`` for a quotation, and has no ``::`` before what is indented.
"""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^>>> (?:.+\n?)+", re.MULTILINE)


class Doctests(Extension):
    """Puts fences around doctests."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite an object's docstring."""
        if obj.docstring:
            text = DOCTEST.sub(
                lambda test: f"```pycon\n{test[0].rstrip()}\n```\n", obj.docstring.value
            )
            text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r" +# doctest: .*$", "", text, flags=re.MULTILINE)
