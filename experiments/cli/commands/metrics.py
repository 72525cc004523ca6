"""``pillarbox metrics``: counters of a running lab for Prometheus."""

from __future__ import annotations

import click

from pillarbox.experiments.base.arguments import lab, take_role_as_root


@click.command()
@lab
@click.option(
    "--listen", metavar="127.0.0.1:PORT", help="Serve the lab's metrics at /metrics until Ctrl-C."
)
def command(number: int | None, listen: str | None) -> None:
    """Print metrics of a running lab for Prometheus: load, drops, faults, dead servers.

    docs/grafana.json is a dashboard for Grafana.

    \b
    sudo ./pillarbox metrics
    sudo ./pillarbox metrics --listen 127.0.0.1:9200
    """
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.runs.control.prometheus import PATH, lab_metrics_text, server_at

    folder = lab_registry.folder_of(number)
    if listen is None:
        click.echo(lab_metrics_text(folder), nl=False)
        return
    with server_at(listen, folder) as server:
        take_role_as_root("metrics", [folder])
        host, port = server.server_address[:2]
        click.echo(f"http://{host!s}:{port}{PATH}")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
