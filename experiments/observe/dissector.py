"""Wireshark's dissector, written from the layouts that servers use themselves.

What every header looks like is said once, in `hosts.wire`; the text in ``dissector.lua`` only
knows how to go through such tables. So a field that is added there is dissected as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hosts.wire import bcube, dcn, ficonn, ipv4
from hosts.wire.dcn import MOST_UID, Protocol
from hosts.wire.frame import ETH_DCN
from hosts.wire.layout import Field, Layout
from hosts.wire.messages import BODIES
from topos.base.topology import Topology

RUNTIME = Path(__file__).with_name("dissector.lua")
MOST_NAMED = 100_000  # servers: Wireshark holds a text for each
UIDS = ("source", "destination", "proxy", "heard", "peer", "server", "previous", "entry")


def lua(topology: Topology | None = None) -> str:
    """Return the dissector; for a topology it shows servers by their addresses.

    >>> '["prefix"] = "heart_beat"' in lua()
    True
    """
    meanings: dict[str, dict[int, str]] = {}
    layouts = {"dcn": _layout(dcn.PLAIN, "dcn", meanings)}
    layouts["proxied"] = _layout(dcn.PROXIED, "dcn", meanings)
    layouts["bcube"] = _layout(bcube.LAYOUT, "bcube", meanings)
    messages: dict[int, dict[str, Any]] = {}
    for number, body in BODIES.items():
        name = Protocol(number).name.lower()
        layouts[name] = _layout(body.head, name, meanings)
        messages[number] = {"name": name, "title": name.replace("_", "-"), "head": name}
        if body.each is not None:
            layouts[f"{name}_entry"] = _layout(body.each, f"{name}.entry", meanings)
            messages[number]["each"] = f"{name}_entry"
    if topology is not None:
        _name_servers(topology, layouts, meanings)
    numbers = {
        "order": list(layouts),
        "ethertype": ETH_DCN,
        "ipv4": int(Protocol.IPV4),
        "ip_in_ip": ipv4.IP_IN_IP,
        "bcube_version": bcube.VERSION,
        "proxied_words": dcn.PROXIED.size // 4,
        "most_hops": bcube.MOST_HOPS,
        "most_uid": MOST_UID,
        "byone": ficonn.BYONE,
    }
    text = RUNTIME.read_text(encoding="utf-8")
    tables = {"LAYOUTS": layouts, "MESSAGES": messages, "MEANINGS": meanings, "NUMBERS": numbers}
    for name, table in tables.items():
        text = text.replace(f"--[[{name}]] nil", _written(table))
    return text


def _layout(layout: Layout, prefix: str, meanings: dict[str, dict[int, str]]) -> dict[str, Any]:
    fields = [_field(field, at, prefix, meanings) for at, field in layout.places()]
    return {"title": layout.title, "prefix": prefix, "size": layout.size, "fields": fields}


def _field(
    field: Field, at: int, prefix: str, meanings: dict[str, dict[int, str]]
) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": field.name,
        "title": field.title,
        "bits": field.bits,
        "at": at,
        "reason": field.reason,
    }
    if field.constant is not None:
        told["constant"] = field.constant
    elif field.most < 2**field.bits - 1:
        told["most"] = field.most
    meaning = dict(field.meaning or {})
    if field.name == "flags":
        meaning[0] = "none"
    elif field.name == "destination" and prefix == "dcn":
        meaning |= {dcn.broadcast(scope): f"broadcast, scope {scope}" for scope in range(8)}
    if meaning:
        told["meaning"] = f"{prefix}.{field.name}"
        meanings[told["meaning"]] = meaning
    return told


def _name_servers(
    topology: Topology, layouts: Mapping[str, Any], meanings: dict[str, dict[int, str]]
) -> None:
    """Let fields that hold a server show its address."""
    servers = range(min(topology.servers, MOST_NAMED))
    addresses = {topology.uid(server): topology.address(server) for server in servers}
    for layout in layouts.values():
        for field in layout["fields"]:
            if field["name"] in UIDS and field["bits"] == 32:
                name = field.setdefault("meaning", f"{layout['prefix']}.{field['name']}")
                meanings[name] = addresses | meanings.get(name, {})


def _written(value: Any) -> str:
    """Return plain data as Lua writes it.

    >>> _written({"a": [1, "x"], 7: True})
    '{ ["a"] = { 1, "x" }, [7] = true }'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, Mapping):
        return _braced(f"[{_written(key)}] = {_written(item)}" for key, item in value.items())
    return _braced(map(_written, value))


def _braced(parts: Iterable[str]) -> str:
    return "{ " + ", ".join(parts) + " }"
