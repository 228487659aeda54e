"""`cans status`, `cans explain`, `cans certs`, `cans token` and `cans doctor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cans.live.commands import device_options as options

_PANEL = "Look after a fleet"
TokenFileOption = Annotated[
    Path, typer.Option("--file", metavar="FILE", help="What `cans serve --token-file` reads.")
]


ServerOption = Annotated[str, typer.Option(metavar="HOST:PORT", help="Whom to ask.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document.")]
HERE = "127.0.0.1:7070"


def register(app: typer.Typer) -> None:
    """Mount this layer's commands."""
    app.command(
        rich_help_panel=_PANEL, epilog="\b\nExample:\n  cans status --server edge-box:7070"
    )(status)
    app.command(
        rich_help_panel=_PANEL,
        epilog="\b\nExample:\n  cans explain camera-1 --server edge-box:7070",
    )(explain)
    app.command(
        rich_help_panel=_PANEL,
        epilog="\b\nExample:\n  cans certs certs --server edge-box --device camera-1",
    )(certs)
    app.command(rich_help_panel=_PANEL, epilog="\b\nExample:\n  cans doctor --json")(doctor)
    token = typer.Typer(
        help="Who may join: add, list and revoke join tokens.", no_args_is_help=True,
        rich_markup_mode=None, epilog="\b\nExample:\n  cans token add camera-1",
    )  # fmt: skip
    token.command("add", epilog="\b\nExample:\n  cans token add camera-1")(token_add)
    token.command("list", epilog="\b\nExample:\n  cans token list --file tokens.txt")(token_list)
    token.command("revoke", epilog="\b\nExample:\n  cans token revoke camera-1")(token_revoke)
    app.add_typer(token, name="token", rich_help_panel=_PANEL)


def status(
    server: ServerOption = HERE,
    token: options.Token = None,
    tls: options.Tls = False,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    most: Annotated[int, typer.Option(help="Devices to show; 0: all.", min=0)] = 0,
    watch: Annotated[
        bool | None,
        typer.Option("--watch/--once", help="Go on until Ctrl-C; in a terminal by default."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what every device of a fleet does. A live table in a terminal."""
    from functools import partial

    from cans.operations.asking import ask

    asking = partial(
        ask, server, most=most, token=token, tls=tls, tls_ca=tls_ca, tls_cert=tls_cert,
        tls_key=tls_key,
    )  # fmt: skip
    document = asking()
    if as_json:
        typer.echo(json.dumps(document))
        return
    from cans.operations.tables import fleet_table, wide_console

    console = wide_console()
    if not (console.is_terminal if watch is None else watch):
        console.print(fleet_table(document))
        return
    from time import sleep

    from rich.live import Live

    with Live(fleet_table(document), console=console, auto_refresh=False) as live:
        while True:
            sleep(1.0)
            live.update(fleet_table(asking()), refresh=True)


def explain(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="Its name.")],
    server: ServerOption = HERE,
    token: options.Token = None,
    tls: options.Tls = False,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a device does and why. Every choice with what is expected of it."""
    from cans.operations.asking import ask

    found = ask(
        server, device, token=token, tls=tls, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key
    )["device"]
    if as_json:
        typer.echo(json.dumps(found))
        return
    from cans.operations.tables import device_page, wide_console

    wide_console().print(device_page(found))


def certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Made if there is none.")],
    server: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Names and addresses devices know the server by."),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A device that shows a certificate (mutual TLS)."),
    ] = None,
    days: Annotated[
        int, typer.Option(help="How long certificates are valid.", min=1, max=3650)
    ] = 825,
    as_json: Annotated[bool, typer.Option("--json", help="Print the files as JSON.")] = False,
) -> None:
    """Make a private certificate authority and certificates.

    For a server (--server) and for devices (--device).

    Run it again in the same folder to add devices; what exists stays as it is. DIR/ca.pem goes to
    every machine, DIR/ca.key stays here.
    """
    from cans.operations.certificates import Authority

    authority = Authority(folder)
    written = [authority.files]
    if server:
        written.append(authority.issue("server", server, days))
    written.extend(authority.issue(each, [], days) for each in device or ())
    if as_json:
        found = [
            {"name": each.name, "certificate": str(each.certificate), "key": str(each.key),
             "new": each.new}
            for each in written
        ]  # fmt: skip
        typer.echo(json.dumps({"files": found}))
        return
    for each in written:
        how = "made" if each.new else "kept"
        typer.echo(f"{how}  {each.certificate}  {each.key}")


def token_add(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="'*' speaks for any device.")],
    file: TokenFileOption = Path("tokens.txt"),
) -> None:
    """Make a token for a device and print it once. The file keeps only its SHA-256."""
    from cans.operations.token_lines import add_token

    typer.echo(add_token(file, device))


def token_list(
    file: TokenFileOption = Path("tokens.txt"),
    as_json: JsonOption = False,
) -> None:
    """Name the devices that have a token."""
    from cans.operations.token_lines import devices_with_tokens

    names = devices_with_tokens(file)
    if as_json:
        typer.echo(json.dumps({"devices": names}))
        return
    for name in names:
        typer.echo(name)


def token_revoke(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="Its name.")],
    file: TokenFileOption = Path("tokens.txt"),
) -> None:
    """Take a device's token away. A running server refuses it from the next request on."""
    from cans.operations.token_lines import revoke_token

    revoke_token(file, device)
    typer.echo(f"{device} may no longer join", err=True)


def doctor(
    server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="See whether it can be reached.")
    ] = None,
    port: Annotated[int, typer.Option(help="Would a server find it free?", min=1, max=65535)] = (
        7070
    ),
    as_json: JsonOption = False,
) -> None:
    """Look at this machine and say what to do.

    Versions, execution providers, threads, ports, privileges and the clock.

    Exits with 1 if something must be repaired.
    """
    from cans.operations.doctor import BAD, GOOD, examine

    findings = examine(port, server)
    if as_json:
        typer.echo(json.dumps({"findings": [each._asdict() for each in findings]}))
    else:
        marks = {GOOD: "ok  ", BAD: "BAD "}
        for each in findings:
            typer.echo(f"{marks.get(each.state, 'note')}  {each.about:16} {each.found}")
            if each.advice:
                typer.echo(f"{'':24}-> {each.advice}")
    if any(each.state == BAD for each in findings):
        raise typer.Exit(1)
