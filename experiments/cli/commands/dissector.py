"""``pillarbox dissector``: a Wireshark dissector for the servers' headers."""

from __future__ import annotations

from pathlib import Path

import click

from pillarbox.experiments.base.arguments import SPEC
from pillarbox.topos.base.topology import Topology

PLUGINS = Path(".local/lib/wireshark/plugins")


@click.command()
@click.argument("topology", metavar="[SPEC]", type=SPEC, required=False)
@click.option(
    "--install",
    is_flag=True,
    help="Install the dissector as a Wireshark plugin of the current user.",
)
def command(topology: Topology | None, install: bool) -> None:
    """Print a Wireshark dissector (Lua) for all headers and control messages.

    With SPEC it shows servers by their addresses. Run tshark as an ordinary user: from Wireshark
    4.4 on it loads no Lua as root.

    \b
    ./pillarbox dissector bcube,4,1 > pillarbox.lua
    tshark -X lua_script:pillarbox.lua -r lab.pcapng
    """
    from pillarbox.experiments.base.files import write_atomically
    from pillarbox.experiments.lab.observe.lua_dissector import lua_dissector_text

    text = lua_dissector_text(topology)
    if not install:
        click.echo(text, nl=False)
        return
    place = Path.home() / PLUGINS / "pillarbox.lua"
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, text.encode())
    click.echo(f"written to {place}: Wireshark reads it when it starts")
