"""``pillarbox exec``: run a program on a server of a running lab."""

from __future__ import annotations

import click

from pillarbox.experiments.base.arguments import complete, lab


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@lab
@click.option("--user", metavar="NAME", help="User to run the program as (default: root).")
@click.option("--raw", is_flag=True, help="Do not replace server addresses in CMD by IP addresses.")
@click.option(
    "--mptcp",
    is_flag=True,
    help="Use Multipath TCP for the program's TCP sockets; the lab runs with `up --mptcp`.",
)
@click.argument("server", shell_complete=complete("servers"), metavar="ADDR")
@click.argument("program", metavar="[CMD...]", nargs=-1, type=click.UNPROCESSED)
def command(
    number: int | None,
    user: str | None,
    raw: bool,
    mptcp: bool,
    server: str,
    program: tuple[str, ...],
) -> int:
    """Run a program on a server of a running lab, or a shell without CMD.

    The exit code is the program's. The program has the server's network and host name, and ends
    with the lab. Server addresses among its arguments become IP addresses, but not in quotes: write
    h19 or 4-3.dcell there. The program is root on this machine's files. With --user it has that
    user's rights, no capabilities, a clean environment and its own terminal.

    \b
    sudo ./pillarbox exec 0.0 ping -c 3 4.3
    sudo ./pillarbox exec 0.0
    sudo ./pillarbox exec 4.3 iperf3 -s
    sudo ./pillarbox exec --mptcp 0.0 iperf3 -c 4.3
    sudo ./pillarbox exec --user nobody 4.3 python3 their_server.py
    sudo ./pillarbox exec outside curl http://1.2/       the client of a lab with gateways
    """
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.lab.emulation.server_names import with_ips
    from pillarbox.experiments.lab.linux.mptcp import with_multipath
    from pillarbox.experiments.runs.control.client import ask, entrance_anywhere
    from pillarbox.experiments.runs.control.server_program import exit_code, run_on_server
    from pillarbox.hosts.live.settings import MPTCP
    from pillarbox.topos.base.errors import require
    from pillarbox.topos.base.spec import parse

    found = entrance_anywhere(lab_registry.folder_of(number), server)
    words = list(program)
    if not raw:
        words = with_ips(parse(found.network), words, port_addresses=found.port_addresses)
    words = words or ["env", f"PS1={found.prompt}", "bash", "--norc"]
    if mptcp:
        about = ask(lab_registry.folder_of(number), ask="about")
        require(about["transport"] == MPTCP, "start the lab with `up --mptcp`")
        words = with_multipath(words)
    code = run_on_server(found, words, user)
    return exit_code(
        code, f"{words[0] if program else 'the shell'} was killed: the server, or the lab, has died"
    )
