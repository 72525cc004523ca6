"""What makes of docs/ a site, beside Markdown: the lab sheets of vagrant/labs, and the notebook.

In the checkout links lead from file to file. In the site the sheets are pages below ``labs/``, and
a notebook is a page of its cells and their outputs. Wide tables get a wide page.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

SHEETS = Path(__file__).parents[1] / "vagrant" / "labs"
LABS = "../vagrant/labs/"  # as a page of docs/ writes it
WIDE_TABLE = re.compile(r"^\|(.*\|){6}$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name pages in the navigation as they are in the site; all sheets follow the first."""
    sheets = [f"labs/{name}" for name in _sheets()]
    for section in config.nav or []:
        for title, pages in section.items():
            section[title] = [
                name
                for page in pages
                for name in (sheets if page.startswith(LABS) else [_page_of(page)])
            ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each sheet and each notebook, and what lies beside the sheets."""
    for file in [SHEETS / name for name in _sheets()] + sorted(SHEETS.glob("*/*.[pt]*")):
        text = file.read_text(encoding="utf-8")
        # From labs/1-addresses/ the folder docs/ of the checkout is two up.
        text = text.replace("](../../../docs/", "](../../").replace("](../../docs/", "](../")
        name = f"labs/{file.relative_to(SHEETS).as_posix()}"
        files.append(File.generated(config, name, content=text))
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        text = "\n\n".join(_markdown(json.loads(notebook.content_string)))
        files.append(File.generated(config, _page_of(notebook.src_uri), content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links to the pages that stand for a sheet or a notebook here."""
    if WIDE_TABLE.search(markdown):
        page.meta["hide"] = ["navigation", "toc"]
    return re.sub(
        r"\]\(([^):]+)\)",
        lambda link: f"]({_page_of(link[1].replace(LABS, 'labs/'))})",
        markdown,
    )


def on_page_content(content: str, **_: Any) -> str:
    """Let the names of files break in tables, where their folders and words do."""
    return re.sub(
        r"(<td.*?>)(.*?)(</td>)",
        lambda cell: cell[1] + re.sub(r"([/_])(?![^<]*>)", r"\1<wbr>", cell[2]) + cell[3],
        content,
    )


def _sheets() -> list[str]:
    return ["README.md", *sorted(f"{s.parent.name}/README.md" for s in SHEETS.glob("*/README.md"))]


def _page_of(name: str) -> str:
    return re.sub(r"\.ipynb$", ".md", name)


def _markdown(notebook: dict[str, Any]) -> Iterator[str]:
    """Yield a notebook's cells and their outputs."""
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"```python\n{source}\n```"
        yield from map(_output, cell["outputs"])


def _output(output: dict[str, Any]) -> str:
    """Return what a cell showed: the picture, the table, or the text."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        picture = "".join(data["image/png"]).strip()
        return f'<img alt="figure" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        # An empty line would end a block of HTML.
        table = re.sub(r"\n\s*\n", "\n", "".join(data["text/html"]).strip())
        return re.sub(r"<style.*?</style>", "", table, flags=re.DOTALL)
    return f"<pre class='output'>{html.escape(''.join(data['text/plain']))}</pre>"
