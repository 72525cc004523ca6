"""Wireshark dissector, generated from the header layouts that servers use.

Each header's layout is defined once, in `pillarbox.hosts.wire`; ``dissector.lua`` interprets tables
of layouts. So a new field in a layout is dissected without further code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pillarbox.hosts.base.network import headers
from pillarbox.hosts.wire import dcn, ficonn, ipv4
from pillarbox.hosts.wire.dcn import MOST_UID, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN
from pillarbox.hosts.wire.header import WORD_BYTES, Header
from pillarbox.hosts.wire.header_layout import Field, HeaderLayout
from pillarbox.hosts.wire.messages import BODIES
from pillarbox.topos.base.topology import Topology

RUNTIME = Path(__file__).with_name("dissector.lua")
MOST_NAMED = 100_000  # maximum number of servers whose addresses Wireshark shows
UIDS = ("source", "destination", "proxy", "heard", "peer", "server", "previous", "entry")


def lua_dissector_text(topology: Topology | None = None) -> str:
    """Return Wireshark's Lua dissector of Pillarbox's headers; a topology adds server names.

    >>> '["prefix"] = "heartbeat"' in lua_dissector_text()
    True
    """
    meanings: dict[str, dict[int, str]] = {}
    layouts: dict[str, dict[str, Any]] = {}
    known = {header.version: _header_table(header, layouts, meanings) for header in headers()}
    messages: dict[int, dict[str, Any]] = {}
    for number, body in BODIES.items():
        name = Protocol(number).name.lower()
        layouts[name] = _layout_table(body.head, name, meanings)
        messages[number] = {"name": name, "title": name.replace("_", "-"), "head": name}
        if body.each is not None:
            layouts[f"{name}_entry"] = _layout_table(body.each, f"{name}.entry", meanings)
            messages[number]["each"] = f"{name}_entry"
    if topology is not None:
        _add_server_names(topology, layouts, meanings)
    numbers = {
        "order": list(layouts),
        "ethertype": ETH_DCN,
        "ipv4": int(Protocol.IPV4),
        "returned": int(Protocol.RETURNED),
        "ip_in_ip": ipv4.IP_IN_IP,
        "usual_version": dcn.VERSION,
        "most_uid": MOST_UID,
        "byone": ficonn.BYONE,
    }
    text = RUNTIME.read_text(encoding="utf-8")
    tables = {
        "LAYOUTS": layouts,
        "HEADERS": known,
        "MESSAGES": messages,
        "MEANINGS": meanings,
        "NUMBERS": numbers,
    }
    for name, table in tables.items():
        text = text.replace(f"--[[{name}]] nil", _lua_literal(table))
    return text


def _header_table(
    header: Header, layouts: dict[str, dict[str, Any]], meanings: dict[str, dict[int, str]]
) -> dict[str, Any]:
    """Return the Lua table that describes the fields of a protocol header."""
    for form in header.forms:
        layouts[form.name] = _layout_table(form.layout, header.name, meanings)
    forms = {form.size // WORD_BYTES: form.name for form in header.forms}
    described = {"name": header.name, "forms": forms, "usual": header.forms[0].name}
    if header.route:
        hops = [field.name for field in header.forms[0].hops]
        described["path"] = {
            "hops": hops,
            "length": header.route.length,
            "taken": header.route.taken,
        }
    return described


def _layout_table(
    layout: HeaderLayout, prefix: str, meanings: dict[str, dict[int, str]]
) -> dict[str, Any]:
    fields = [_field_table(field, at, prefix, meanings) for at, field in layout.places()]
    return {"title": layout.title, "prefix": prefix, "size": layout.size, "fields": fields}


def _field_table(
    field: Field, at: int, prefix: str, meanings: dict[str, dict[int, str]]
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": field.name,
        "title": field.title,
        "bits": field.bits,
        "at": at,
        "reason": field.reason,
    }
    if field.constant is not None:
        described["constant"] = field.constant
    elif field.most < 2**field.bits - 1:
        described["most"] = field.most
    meaning = dict(field.meaning or {})
    if field.name == "flags":
        meaning[0] = "none"
    elif field.name == "destination" and prefix == "dcn":
        meaning |= {dcn.broadcast(scope): f"broadcast, scope {scope}" for scope in range(8)}
    if meaning:
        described["meaning"] = f"{prefix}.{field.name}"
        meanings[described["meaning"]] = meaning
    return described


def _add_server_names(
    topology: Topology, layouts: Mapping[str, Any], meanings: dict[str, dict[int, str]]
) -> None:
    """Add server addresses to the value names of header fields that hold a server number."""
    servers = range(min(topology.servers, MOST_NAMED))
    addresses = {topology.uid(server): topology.address(server) for server in servers}
    for layout in layouts.values():
        for field in layout["fields"]:
            if field["name"] in UIDS and field["bits"] == 32:
                name = field.setdefault("meaning", f"{layout['prefix']}.{field['name']}")
                meanings[name] = addresses | meanings.get(name, {})


def _lua_literal(value: Any) -> str:
    """Return plain data as a Lua literal.

    >>> _lua_literal({"a": [1, "x"], 7: True})
    '{ ["a"] = { 1, "x" }, [7] = true }'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, Mapping):
        return _lua_table(
            f"[{_lua_literal(key)}] = {_lua_literal(item)}" for key, item in value.items()
        )
    return _lua_table(map(_lua_literal, value))


def _lua_table(parts: Iterable[str]) -> str:
    return "{ " + ", ".join(parts) + " }"
