"""Builds the guide as a site in build/site: ``.venv/bin/python docs/site.py``.

In the checkout, links lead from file to file. The site's pages are written to build/docs first: the
pages of docs/, the lab sheets of vagrant/labs below ``labs/``, each notebook as a page of its cells
and outputs, and each recording of the gallery as a page that plays it. Zensical then builds the
site, with zensical.toml, and fails on a broken link.
To see the site while it runs: ``.venv/bin/zensical serve``.
"""

from __future__ import annotations

import gzip
import html
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pillarbox.experiments.apps.page.standalone import files, standalone

ROOT = Path(__file__).parents[1]
SHEETS = ROOT / "vagrant" / "labs"
LABS = "../vagrant/labs/"  # in links of docs/
WIDE_TABLE = re.compile(r"^\|(.*\|){6}$", re.MULTILINE)
RECORDING = ".json.gz"  # suffix of the gallery's recordings
FULL_WIDTH = "---\nhide: [navigation, toc]\n---\n"


def main() -> int:
    """Write the pages and build the site; return Zensical's exit code."""
    write_pages(ROOT / "build" / "docs")
    if importlib.util.find_spec("zensical") is None:
        message = (
            "the pages are in build/docs, the gallery's recordings in build/docs/gallery/NAME.html; "
            "the site needs Zensical: .venv/bin/pip install -e '.[docs]'"
        )
        print(message, file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def write_pages(folder: Path) -> None:
    """Write the site's pages and all files that they show."""
    shutil.rmtree(folder, ignore_errors=True)
    not_shown = shutil.ignore_patterns("*.py", "run", "__pycache__")
    shutil.copytree(ROOT / "docs", folder, ignore=not_shown)
    for file in [*SHEETS.glob("README.md"), *SHEETS.glob("*/*.[mpt]*")]:
        target = folder / "labs" / file.relative_to(SHEETS)
        target.parent.mkdir(parents=True, exist_ok=True)
        # labs/1-addresses/ is two levels below the site's root, and four below the checkout's.
        text = file.read_text(encoding="utf-8")
        text = text.replace("](../../../docs/", "](../../").replace("](../../docs/", "](../")
        target.write_text(text, encoding="utf-8")
    for notebook in folder.rglob("*.ipynb"):
        cells = json.loads(notebook.read_text(encoding="utf-8"))
        notebook.with_suffix(".md").write_text("\n\n".join(_cells(cells)), encoding="utf-8")
    for recording in folder.rglob(f"*{RECORDING}"):
        page = standalone(gzip.decompress(recording.read_bytes()).decode(), files())
        name = recording.name.replace(RECORDING, ".html")
        recording.with_name(name).write_text(page, encoding="utf-8")
        recording.unlink()
    for page in folder.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        wide = FULL_WIDTH if WIDE_TABLE.search(text) else ""
        page.write_text(wide + re.sub(r"\]\(([^):]+)\)", _link, text), encoding="utf-8")


def _link(link: re.Match[str]) -> str:
    """Return a link to the page of a sheet, a notebook or a recording; other links stay."""
    target = link[1].replace(LABS, "labs/").replace(RECORDING, ".html")
    return f"]({re.sub(r'[.]ipynb$', '.md', target)})"


def _cells(notebook: dict[str, Any]) -> Iterator[str]:
    """Yield a notebook's cells and their outputs as Markdown."""
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"```python\n{source}\n```"
        yield from map(_output, cell["outputs"])


def _output(output: dict[str, Any]) -> str:
    """Return a cell's output: the picture, the table, or the text."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        picture = "".join(data["image/png"]).strip()
        return f'<img alt="figure" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        # An empty line would end the HTML block.
        table = re.sub(r"\n\s*\n", "\n", "".join(data["text/html"]).strip())
        return re.sub(r"<style.*?</style>", "", table, flags=re.DOTALL)
    return f"<pre class='output'>{html.escape(''.join(data['text/plain']))}</pre>"


if __name__ == "__main__":
    sys.exit(main())
