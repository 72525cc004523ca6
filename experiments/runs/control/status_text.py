"""The answer of `status` as tables, for a lab and for one of its servers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pillarbox.experiments.base.text import columns

MOST_ROWS = 12
# keys of a server's state (JSON) that `status SERVER` prints first
FIRST = ("server", "plane", "links", "dead")


def lab_text(status: dict[str, Any], faults: Sequence[str]) -> str:
    """Return the state of a lab as text: its settings, faults and dropped packets."""
    rate = status["rate_mbit"]
    shape = f"{rate:g} Mbit/s" if rate else "no limit of the rate"
    if status.get("level_rates_mbit"):
        rates = ", ".join(f"{one:g}" for one in status["level_rates_mbit"])
        shape = f"{rates} Mbit/s (levels 0, 1, ..)"
    queue = status["queue_bytes"]
    shape += f", queues of {queue / 1000:g} kB" if queue else ""
    rows = [
        ["network", f"{status['network']}, {status['servers']} servers"],
        ["routing", f"{status['routing']}, plane {status['plane']}, timers {status['timers']}"],
        ["cables", shape],
        *([["TCP", status["tcp"]]] if status.get("tcp") else []),
        *([["transport", "Multipath TCP"]] if "transport" in status else []),
        ["dead", " ".join(status["dead"]) or "none"],
        ["faults", ", ".join(faults) or "none"],
        ["links", f"{status['links_down']} down now, {status['link_losses']} lost since the start"],
    ]
    return "\n\n".join(
        [columns(rows), *_nonzero_counters_table([("dropped packets", status["drops"])])]
    )


def server_text(state: dict[str, Any]) -> str:
    """Return the state of a server as text: its links, counters and tables."""
    name = state["server"]
    if set(state) <= {"server", "dead"}:
        relays = f"{name} is alive; it does not relay, and has no counters"
        return f"{name} is dead: revive {name}" if state.get("dead") else relays
    parts = [f"server {name}, plane {state.get('plane', 'python')}"]
    links = [
        [str(link["port"]), link["peer"], "up" if link["up"] else "DOWN"]
        for link in state.get("links", [])
    ]
    parts.append(columns([["port", "peer", "link"], *links], numbers=[0]))
    rest = {key: value for key, value in state.items() if key not in FIRST}
    counted = [(key, value) for key, value in rest.items() if _is_counts(value)]
    single = [(key, value) for key, value in rest.items() if isinstance(value, int | float)]
    parts += _nonzero_counters_table([*counted, ("other", dict(single))])
    for key, value in rest.items():
        if isinstance(value, list) and value:
            parts.append(_listed(key, value, name))
    return "\n\n".join(parts)


def _is_counts(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in value.values()
    )


def _nonzero_counters_table(groups: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return a table of a server's nonzero counters as a list item, or an empty list."""
    rows = [
        [title, name, f"{value:,}"]
        for title, counts in groups
        for name, value in counts.items()
        if value
    ]
    return [columns([["counter", "of", "count"], *rows], numbers=[2])] if rows else []


def _listed(title: str, values: list[Any], server: str) -> str:
    """Return a table of a server's state, such as routes, with its first rows only."""
    shown = values[:MOST_ROWS]
    if all(isinstance(one, dict) for one in shown):
        keys = list(dict.fromkeys(key for one in shown for key in one))
        rows = [keys, *([_cell_text(one.get(key)) for key in keys] for one in shown)]
        lines = [f"{title}:", columns(rows)]
    else:
        lines = [f"{title}: {', '.join(map(_cell_text, shown))}"]
    more = len(values) - len(shown)
    all_of_it = f"sudo ./pillarbox status {server} --json, in another terminal"
    return "\n".join([*lines, *([f"and {more} more: {all_of_it}"] if more else [])])


def _cell_text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return _cell_text(value["peer"] if "peer" in value else list(value.values()))
    if isinstance(value, list | tuple):
        return " ".join(map(_cell_text, value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
