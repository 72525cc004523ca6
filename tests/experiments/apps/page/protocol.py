"""Whether what a page is told is as docs/page.schema.json says, by what JSON Schema it uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[4] / "docs" / "page.schema.json").read_text()
)
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
    "null": type(None),
}  # fmt: skip
KNOWN = {
    *("$schema", "title", "description", "$defs", "$ref", "type", "const", "enum"),
    *("oneOf", "required", "properties", "additionalProperties", "items"),
}


def faults_of(told: Any, schema: Any = SCHEMA, place: str = "") -> list[str]:
    """Return what is not as the schema says, and where."""
    if isinstance(schema, bool):
        return [] if schema else [f"{place} is not to be there"]
    assert schema.keys() <= KNOWN, schema.keys() - KNOWN
    found = []
    if "$ref" in schema:
        found += faults_of(told, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], place)
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    right = any(isinstance(told, TYPES[kind]) and not isinstance(told, bool) for kind in kinds)
    found += [f"{place} is no {kinds}"] if kinds and not right else []
    found += [f"{place} is not {schema['const']!r}"] if told != schema.get("const", told) else []
    found += [f"{place} is none of those"] if told not in schema.get("enum", [told]) else []
    if "oneOf" in schema:
        each: list[list[str]] = [faults_of(told, one, place) for one in schema["oneOf"]]
        if each.count([]) != 1:
            found += min(each, key=len) or [f"{place} is two"]
    if isinstance(told, dict):
        properties = schema.get("properties", {})
        found += [
            f"{place} lacks {name}" for name in schema.get("required", []) if name not in told
        ]
        for name, one in told.items():
            further = schema.get("additionalProperties", True)
            found += faults_of(one, properties.get(name, further), f"{place}/{name}")
    if isinstance(told, list) and "items" in schema:
        for i, one in enumerate(told):
            found += faults_of(one, schema["items"], f"{place}/{i}")
    return found
