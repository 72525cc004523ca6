"""The page of a lab over machines shows what its cables carry, its faults and its workload."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.apps.cluster.over import apart, lab_over
from tests.experiments.apps.page.visiting import visited
from tests.harness.page_client import watching

pytest.importorskip("distributed", reason="pip install 'dask[distributed]'")
pytest.importorskip("cryptography", reason="pip install cryptography")
# Long: test_page_server.py and test_distributed_lab.py test both parts for themselves.
pytestmark = [pytest.mark.root, pytest.mark.long]

PATIENCE_S = 60.0
ENDS = ("0.0", "4.3")


async def until(page: Any, wanted: Any) -> dict[str, Any]:
    """Take messages until one is wanted, and return that."""
    async for message in page:
        if wanted(message):
            return dict(message)
    raise AssertionError("the page's server has ended")


def event(kind: str) -> Any:
    return lambda message: message["is"] == "event" and message["event"]["kind"] == kind


def is_busy(message: dict[str, Any]) -> bool:
    """Tell whether it is a sample in which data flows and has come to programs.

    The two are counted on different machines, and may be in different samples at first.
    """
    sample = message.get("sample", {})
    return bool(sample.get("goodput", 0) > 1000 and sample["received"] > 1000)


def test_a_page_over_machines(tmp_path: Path) -> None:
    async def visit(lab: Any, url: str) -> None:
        source, destination = map(lab.server, ENDS)
        assert lab.fabric.machine_of(source) != lab.fabric.machine_of(destination)
        async with watching(url) as page, watching(url) as other:
            run = ["one-to-one", f"source={ENDS[0]}", f"destination={ENDS[1]}", "duration_s=60"]
            sending = asyncio.create_task(other.do("run", *run))
            busy = await until(page, is_busy)
            assert busy["sample"]["sent"]
            await page.do("finish")
            await sending
            assert (await until(page, event("result")))["event"]["said"]
            cable = next(one for one in lab.topology.links() if apart(lab, (one.a, one.b)))
            ends = [lab.name(node) for node in (cable.a, cable.b)]
            await page.do("cut", "-".join(ends))
            noticed = await until(page, event("noticed"))
            assert noticed["event"]["what"][0] in ends
            log = await page.do("log", lab.name(cable.a))
            assert isinstance(log["log"], str)
            number = str((await page.do("shell", ENDS[1], "24", "80"))["shell"])
            await page.do("type", number, "hostname -I; exit\r")
            address = lab.topology.ip(destination)
            await until(page, lambda one: address in one.get("text", ""))

    with lab_over("dcell,4,1", 2, tmp_path) as lab:
        visited(lab, visit, lab.fabric.requests())
