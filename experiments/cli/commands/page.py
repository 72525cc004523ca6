"""``pillarbox page``: web page of a running lab or a finished run."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pillarbox.experiments.base.arguments import (
    FILE,
    lab,
    listen_option,
    plain_http_option,
    terminals_option,
)
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from pillarbox.experiments.apps.page.process import PageSocket

SAVE_S = 30.0  # Timeout for the download of a recording, in seconds.


@click.command()
@click.argument("run", metavar="[RUN]", type=click.Path(path_type=Path), required=False)
@lab
@listen_option
@plain_http_option
@terminals_option
@click.option(
    "--trial",
    type=int,
    help="Number of the run's trial, from 1 (default: one with faults if there is one).",
)
@click.option(
    "--save", type=FILE, metavar="FILE.html", help="Write the lab's recording to one HTML file."
)
def command(
    run: Path | None,
    number: int | None,
    listen: str,
    plain_http: bool,
    terminals: bool,
    trial: int | None,
    save: Path | None,
) -> None:
    """Show a running lab in a browser; cut and repair cables with a click.

    Prints two addresses: one to operate the lab, one only to watch. With RUN it writes the
    recording of a finished run to one file that any browser can play, without root.

    \b
    sudo ./pillarbox page
    sudo ./pillarbox page --listen 192.0.2.7:8080
    sudo ./pillarbox page --save lab.html
    ./pillarbox page first --save first.html
    """
    if run is not None:
        saved = f"{run} is a file: give a run's directory, or open a saved page in a browser"
        require(not run.is_file(), saved)
        from pillarbox.experiments.apps.page import runs

        file = save or run / runs.PAGE
        runs.save(run, trial, file)
        click.echo(file)
        return
    from pillarbox.experiments.apps.page import process
    from pillarbox.experiments.lab.emulation import lab_registry

    folder = lab_registry.folder_of(number)
    known, certificate = process.address_in(folder)
    if save is not None:
        _save_recording(known, certificate, save)
    elif known:
        click.echo(f"this lab's page is already being served: {known}")
    else:
        listening = process.opened(listen, plain_http=plain_http, terminals=terminals)
        _serve_live_page(folder, listening)


def _serve_live_page(folder: Path, listening: PageSocket) -> None:
    from functools import partial

    from pillarbox.experiments.apps.page import process
    from pillarbox.experiments.runs.control.client import ask

    page = process.Page(listening, partial(ask, folder), folder)
    try:
        click.echo(process.welcome(listening))
        page.wait()
    except KeyboardInterrupt:
        pass
    finally:
        page.close()


def _save_recording(address: str, certificate: str, file: Path) -> None:
    from pillarbox.experiments.apps.page.certificate import client_context
    from pillarbox.experiments.base.files import give_to_user, write_atomically

    require(bool(address), "the lab's web page is not being served: run `pillarbox page` first")
    try:
        where = address.replace("/?", "/save?")
        trusted = client_context(certificate) if certificate else None
        with urllib.request.urlopen(where, timeout=SAVE_S, context=trusted) as answer:
            content = answer.read()
    except OSError as error:
        raise PillarboxError(f"the lab's web page does not answer: {error}") from None
    write_atomically(file, content)
    give_to_user(file)
    click.echo(file)
