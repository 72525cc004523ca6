"""A lab with a live page, for the programs that draw the guide's pictures."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The checkout comes first, as another distribution may have a package `tests` too.
sys.path.insert(0, str(ROOT))


@asynccontextmanager
async def page_of(network: str, rate_mbit: float) -> AsyncIterator[str]:
    """Run a lab with a page; yield the page's URL."""
    words = ["up", network, "--rate-mbit", str(rate_mbit), "--page", "--hold"]
    lab = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(sys.executable).with_name("pillarbox")), *words,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert lab.stdin and lab.stdout
    try:
        url = re.search(r"http\S+", (await lab.stdout.readline()).decode())
        assert url, "the lab did not start: its reason is above"
        yield url[0]
    finally:
        lab.stdin.close()
        await lab.wait()
