"""Writes docs/commands.md from the commands' help texts: ``.venv/bin/python docs/commands.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from pathlib import Path

from pillarbox.experiments.base.arguments import MORE, SCHEMA
from pillarbox.experiments.cli.main import SECTIONS, cli
from pillarbox.experiments.cli.manual import CommandEntry, entries

PAGE = Path(__file__).with_name("commands.md")
# Options that several commands share, and their place in a usage line.
COMMON = {
    "--fail": " [--fail FAULT]...",
    "--lab": " [--lab N]",
    "--name": " [--name NAME]",
    "--secret": " [--secret TEXT]",
    "--secret-file": " [--secret-file FILE]",
    "--json": " [--json]",
}
SHORT = 250  # length of a text up to which a command is a row of a table, in characters
ONE_LINE = 45  # length of an option's text up to which it is repeated, in characters
TRIVIAL_RANGE = re.compile(r"; x>=?[01](?:\.0)?(?=\])| \[x>=?[01](?:\.0)?\]")
AT_PROMPT = re.compile(r" As at the prompt of a running lab: .*")
HEAD = f"""\
# Commands

All commands of `pillarbox` by task. `./pillarbox COMMAND --help` adds examples.

```sh
./pillarbox path dcell,4,1 0.0 4.3
```

Live labs are fastest with root, `sudo ./pillarbox up dcell,4,1`; most commands also run [without](install.md#without-root).
`pillarbox setup completion` installs shell completion, and `pillarbox setup man` the man pages.

## Commands with similar purposes

| purpose | command | input | result |
|---|---|---|---|
| **path** | `path` | network | computed path; with `--fail` around faults |
| | `trace` | running lab | path of a packet sent now, and the computed path (prompt: `path`) |
| | `why` | running lab | `trace`, with the cause of a loss and the command that helps |
| | `follow` | capture file | path of each captured packet, compared with the routing |
| | `check-router` | network, routing | packets that a routing loses although a path exists |
| **state** | `labs` | machine | running labs and their numbers |
| | `status` | running lab | faults and drops; of a server: links, flows, counters |
| | `load` | running lab | busiest links of the next second |
| | `metrics` | running lab | all counters, for Prometheus |
| | `page` | running lab | live view in a browser |
| | `net`, `links` | prompt | cables, as Mininet lists them; without a lab: `topo SPEC --cables` |
| **analysis without a lab** | `topo` | network | size, bounds, drawing |
| | `compare` | networks | size, bisection, cost and power in one table |
| | `gap` | network | throughput of each routing relative to the optimum |
| | `simulate` | network, load | slowdown of arriving flows |
| | `training` | network, Chakra trace or model | time of a [training iteration](training.md), and its parts |
| | `packaging`, `place`, `forecast` | network | racks and wires; distribution over machines; memory and machines of a run |
| **measurement** | `ping`, `pingall`, `iperf` | running lab | one value, without a verdict |
| | `run PATTERN` | prompt | one workload with its ideal and [verdict](trust.md); `finish` ends it |
| | `run NAME` | experiment | repeated trials of several systems; `--load 0.3,0.6` sweeps |
| | `calibrate` | network | highest faithful rate, for `run --rate-mbit calibrated` |
| | `cc` | congestion control | [your own TCP control](congestion.md), compared with Reno |
| | `bench` | benchmark | performance of Pillarbox on this machine |
| | `reproduce` | figure | a paper's figure, compared with its numbers |
| **results** | `report` | run | figures and report.html |
| | `why-slow` | run of `run --log-packets` | [parts of a flow's completion time](why-slow.md), in a sentence |
| | `compare-runs` | two runs | differences of settings and results |
| | `artifact`, `repeat` | a run; its artifact | [one file for reviewers](records.md#an-artifact-for-reviewers); the same experiment again, and whether results agree |
| **programs** | `exec` | running lab | a program or shell on one server |
| | `mpirun`, `hosts` | running lab | an MPI program on many servers; their host file |
| | `torchrun` | running lab | a [PyTorch program](pytorch.md) on many servers |
| **end** | `finish`, `down` | running lab | end of the workload; end of the lab |
| | `clean` | machine | removal of what killed labs left |

## Common options

| option | |
|---|---|
| `--json` | Print one JSON object. Its `schema` is {SCHEMA}; changed or removed keys raise it, \
added keys do not. `{MORE}`: keys depend on the arguments ([records](records.md)). |
| `--lab N` | Number of the lab, if several are running. |
| `--fail FAULT` | `'cut A-B'`, `'kill A'`, `'stop SWITCH'`, `'rack SWITCH'`. Repeatable. |
| `--name NAME` | Name of the cluster (default: cluster). |
| `--secret TEXT` | Secret seed of hidden test cases; safer in PILLARBOX_GRADE_SECRET or a file. |
| `--secret-file FILE` | File with the secret (sudo does not pass the environment on). |
"""


def page() -> str:
    """Return the text of the page."""
    found = list(entries(cli, "pillarbox"))
    parts = [HEAD]
    listed: dict[tuple[str, str], str] = {}
    for title, names in SECTIONS.items():
        chosen = [entry for name in names for entry in found if entry.name.split()[1] == name]
        parts.append(f"## {title}\n")
        short = [entry for entry in chosen if _is_short(entry)]
        parts += [_table(short)] if short else []
        parts += [_section(entry, listed) for entry in chosen if entry not in short]
    return "\n".join(parts)


def _table(commands: list[CommandEntry]) -> str:
    """Return a table of short commands, below a sentence about the options of all of them."""
    shared = set.intersection(*(set(_common_options(entry)) for entry in commands))
    shared = shared if len(commands) > 1 else set()
    rows = [
        f"| `{_cell(_usage(entry, shared))}` | {_cell(_about(entry))} | {_keys(entry)} |"
        for entry in commands
    ]
    names = " and ".join(f"`{name}`" for name in COMMON if name in shared)
    head = [f"All commands of this table take {names}.", ""] if shared else []
    return "\n".join([*head, "| command | | JSON |", "|---|---|---|", *rows, ""])


def _section(entry: CommandEntry, listed: dict[tuple[str, str], str]) -> str:
    """Return a command's section; an option that an earlier command has only refers to it."""
    name = entry.name.partition(" ")[2]
    lines = [f"### {name}", "", f"`{_usage(entry)}`", "", _about(entry), ""]
    same: dict[str, list[str]] = {}
    for option, about in _own_options(entry):
        first = listed.setdefault((option, about), name) if len(about) > ONE_LINE else name
        if first == name:
            lines.append(f"- `{option}`: {_plain(about)}")
        else:
            same.setdefault(first, []).append(f"`{option.split()[0]}`")
    lines += [
        f"- {', '.join(options)}: as for [{first}](#{first.replace(' ', '-')})."
        for first, options in same.items()
    ]
    lines += [f"- JSON: {_keys(entry)}"] if entry.keys else []
    return "\n".join([*lines, ""])


def _is_short(entry: CommandEntry) -> bool:
    """Return True if a line has room for the command."""
    return not _own_options(entry) and len(entry.text) < SHORT


def _own_options(entry: CommandEntry) -> list[tuple[str, str]]:
    """Return the options that the page explains at this command."""
    return [
        (name.replace(" RANGE", ""), TRIVIAL_RANGE.sub("", about.replace("  [", " [")))
        for name, about in entry.options
        if not _is_common(name, about)
    ]


def _is_common(option: str, about: str) -> bool:
    """Return True if the head of the page explains the option (`follow --fail` differs)."""
    return option.split()[0] in COMMON and "default: the faults" not in about


def _usage(entry: CommandEntry, without: Set[str] = frozenset()) -> str:
    options = " [OPTIONS]" if _own_options(entry) else ""
    options += "".join(COMMON[name] for name in _common_options(entry) if name not in without)
    return entry.usage.replace(" [OPTIONS]", options)


def _common_options(entry: CommandEntry) -> Iterator[str]:
    names = {name.split()[0] for name, about in entry.options if _is_common(name, about)}
    return (name for name in COMMON if name in names)


def _about(entry: CommandEntry) -> str:
    return _plain(AT_PROMPT.sub("", entry.text))


def _plain(text: str) -> str:
    """Return a text whose brackets are not Markdown links."""
    return text.replace("[", "\\[")


def _keys(entry: CommandEntry) -> str:
    return ", ".join(f"`{key}`" for key in entry.keys)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
