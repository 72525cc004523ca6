"""``pillarbox status``: how a running lab is."""

from __future__ import annotations

from typing import Any

import click

from experiments.arguments import answer, json_option, lab


@click.command()
@click.argument("server", metavar="[ADDR]", required=False)
@lab
@json_option("Everything, as one JSON object.")
def command(server: str | None, number: int | None, as_json: bool) -> None:
    """Tell how a running lab is, or what one of its servers knows and did.

    \b
    sudo ./pillarbox status
    sudo ./pillarbox status 0.3 --json
    """
    from experiments.emulation import registry
    from experiments.emulation.service import ask

    folder = registry.folder_of(number)
    state = ask(folder, ask="state", server=server) if server else ask(folder, ask="status")
    answer(as_json, state, "\n".join(_lines(state)))


def _lines(state: dict[str, Any], indent: str = "") -> list[str]:
    """Return nested data as indented lines."""
    lines = []
    for key, value in state.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", *_lines(value, indent + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            lines.append(f"{indent}{key}:")
            for item in value:
                lines.append(f"{indent}  - " + ", ".join(f"{k} {v}" for k, v in item.items()))
        elif isinstance(value, list):
            lines.append(f"{indent}{key}: {' '.join(map(str, value)) or 'none'}")
        else:
            lines.append(f"{indent}{key}: {value}")
    return lines
