"""`cans run`: an unmodified program whose onnxruntime sessions a server helps."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from typing import Annotated

import typer

from cans.errors import InputError
from cans.live.commands import device_options as options
from cans.program.hook import VARIABLE


def register(app: typer.Typer) -> None:
    """Mount this layer's command."""
    app.command(
        rich_help_panel="Run a fleet",
        epilog="\b\nExample:\n  cans run --server edge-box:7070 -- python app.py --camera 0",
    )(run)


def run(
    program: Annotated[list[str], typer.Argument(metavar="-- PROGRAM ...", help="What to run.")],
    server: options.Server,
    type_: options.Type = "auto",
    network: options.Network = "default",
    allow_codec: Annotated[
        list[str] | None,
        typer.Option(help="How tensors may travel; repeat for several; lossless by default."),
    ] = None,
    deadline_ms: Annotated[
        float, typer.Option(help="Without an answer by then, run locally.")
    ] = 10_000.0,
    wait: Annotated[
        bool, typer.Option("--wait", help="Sessions wait for their device before they start.")
    ] = False,
    objective: options.Objective = "latency",
    fps: options.Fps = None,
    selfish: options.Selfish = False,
    own_runs: options.OwnRuns = True,
    weight: options.Weight = 1.0,
    max_memory_mb: options.MaxMemoryMb = None,
    max_mb_per_day: options.MaxMbPerDay = None,
    send_model: Annotated[
        bool,
        typer.Option("--send-model/--no-send-model", help="Give a server what it lacks."),
    ] = True,
    tls: options.Tls = False,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    token: options.Token = None,
) -> None:
    """Run a program as it is, with a server's help. Its onnxruntime sessions answer without the
    server too."""
    from cans.learning.objective import Objective
    from cans.live.device.options import DeviceOptions
    from cans.live.wire.link import parse_servers
    from cans.live.wire.tls import ClientTls

    # What a device would refuse is said here: later, the program would run without the server.
    DeviceOptions(
        parse_servers(server), type_, network, deadline_ms=deadline_ms, weight=weight,
        objective=Objective.parse(objective, fps), max_memory_mb=max_memory_mb,
        max_mb_per_day=max_mb_per_day,
    )  # fmt: skip
    given: dict[str, object] = {
        "server": server, "type": type_, "network": network, "deadline_ms": deadline_ms,
        "wait": wait, "token": token, "send_model": send_model,
        "objective": objective, "fps": fps, "max_memory_mb": max_memory_mb,
        "max_mb_per_day": max_mb_per_day, "selfish": selfish, "weight": weight,
        "own_runs": own_runs,
    }  # fmt: skip
    if allow_codec:
        from cans.models.codecs.codec import get_codec

        for name in allow_codec:
            get_codec(name, None)
        given["codecs"] = allow_codec
    if tls or tls_ca or tls_cert or tls_key:
        paths = (tls_ca, tls_cert, tls_key)
        ClientTls(*paths).credentials()
        given["tls"] = [None if each is None else str(each.absolute()) for each in paths]
    environment = dict(os.environ)
    environment[VARIABLE] = json.dumps(given)
    environment.setdefault("GRPC_VERBOSITY", "ERROR")  # else it talks when the program forks
    startup = str(files("cans.program") / "startup")
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = startup + (os.pathsep + before if before else "")
    try:
        os.execvpe(program[0], program, environment)
    except OSError as error:
        raise InputError(f"cannot run {program[0]!r}: {error.strerror}") from None
