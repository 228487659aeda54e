"""Options of whoever speaks to a server: `cans device`, `run`, `status` and `explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Server = Annotated[str, typer.Option(metavar="HOST:PORT[,HOST:PORT]", help="Servers of one fleet.")]
Type = Annotated[
    str,
    typer.Option(
        "--type", help="Prefix of the group that the server finds for it; auto: no prefix."
    ),
]
Network = Annotated[str, typer.Option(help="Devices on a network learn together.")]
Objective = Annotated[str, typer.Option(help="latency or throughput.")]
Fps = Annotated[
    float | None, typer.Option(help="The quickest choice that keeps up with so many a second.")
]
Selfish = Annotated[
    bool, typer.Option("--selfish", help="Do not care how long others wait for this device.")
]
OwnRuns = Annotated[
    bool,
    typer.Option("--own-runs/--no-own-runs", help="Try now and then what is never run here."),
]
Weight = Annotated[float, typer.Option(help="How much it matters beside others in a crowd.")]
MaxMemoryMb = Annotated[float | None, typer.Option(help="Memory of a model and its halves.")]
MaxMbPerDay = Annotated[
    float | None, typer.Option(help="A metered link: then answer alone until tomorrow.")
]
Tls = Annotated[bool, typer.Option("--tls", help="Encrypt, trusting the system.")]
TlsCa = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Encrypt, trusting this authority (PEM).")
]
TlsCert = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Show this certificate (mutual TLS; PEM).")
]
TlsKey = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The certificate's private key (PEM).")
]
Token = Annotated[
    str | None, typer.Option(envvar="CANS_TOKEN", help="Join token.", show_envvar=True)
]
