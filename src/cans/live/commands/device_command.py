"""`cans device`."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cans.config_file import ConfigOption
from cans.errors import InputError
from cans.live.commands import device_options as options
from cans.models.commands import OptimisationOption, ProviderOption

if TYPE_CHECKING:
    from cans.live.wire.tls import ClientTls


def device(
    server: options.Server,
    model: Annotated[
        str | None,
        typer.Option(help="ONNX file, built-in name or a name that the server has; its only one."),
    ] = None,
    model_sha256: Annotated[
        str | None, typer.Option(metavar="HEX", help="Run this model only, with or without server.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Move to a new model of the server?")
    ] = True,
    type_: options.Type = "auto",
    network: options.Network = "default",
    input_: Annotated[
        str, typer.Option("--input", metavar="FILE", help="An .npz of inputs, or random.")
    ] = "random",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz|DIR", help="Where outputs go: a file for one, or a folder."),
    ] = None,
    count: Annotated[int, typer.Option(help="Inferences to run.")] = 1,
    interval_ms: Annotated[float, typer.Option(help="Pause between inferences.")] = 0.0,
    name: Annotated[str | None, typer.Option(help="Of this device; made up if not given.")] = None,
    state: Annotated[Path | None, typer.Option(metavar="DIR", help="Where it remembers.")] = None,
    deadline_ms: Annotated[float, typer.Option(help="An answer or an error by then.")] = 10_000.0,
    local: Annotated[
        bool, typer.Option("--local/--no-local", help="Can it run the whole model?")
    ] = True,
    min_local_depth: Annotated[int, typer.Option(help="Privacy: never cut before this point.")] = 0,
    local_until: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Privacy: never cut before this point or tensor."),
    ] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Never send more than this.")] = None,
    allow_codec: Annotated[
        list[str] | None, typer.Option(help="Accuracy: only these codecs; repeat for several.")
    ] = None,
    max_error: Annotated[
        float | None, typer.Option(help="Accuracy: leave out codecs that change answers more.")
    ] = None,
    min_agreement: Annotated[
        float | None, typer.Option(help="Accuracy: ... that change the top answer more often.")
    ] = None,
    avoid_after_ms: Annotated[
        float | None, typer.Option(help="Avoid choices expected to take longer.")
    ] = None,
    exit_: Annotated[
        list[str] | None, typer.Option("--exit", metavar="NAME:THRESHOLD", help="Early exit.")
    ] = None,
    tls: options.Tls = False,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    token: options.Token = None,
    seed: Annotated[int | None, typer.Option(help="Of inputs and random choices.")] = None,
    slowdown: Annotated[
        float, typer.Option(hidden=True, help="Testbed: run K times slower.")
    ] = 1.0,
    pace_mbps: Annotated[
        float | None, typer.Option(hidden=True, help="Testbed: upload no faster.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of one front-end; 0: all cores.")] = 1,
    provider: ProviderOption = None,
    optimisation: OptimisationOption = "all",
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Build every front-end first (small models).")
    ] = False,
    log_jsonl: Annotated[
        Path | None, typer.Option(metavar="FILE", help="One JSON line per inference.")
    ] = None,
    obey: Annotated[
        bool,
        typer.Option("--obey", hidden=True, help="Testbed: do what lines of standard input say."),
    ] = False,
    traces: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="OTLP collector of traces.")
    ] = None,
    objective: options.Objective = "latency",
    fps: options.Fps = None,
    selfish: options.Selfish = False,
    own_runs: options.OwnRuns = True,
    weight: options.Weight = 1.0,
    max_memory_mb: options.MaxMemoryMb = None,
    max_mb_per_day: options.MaxMbPerDay = None,
    send_model: Annotated[
        bool, typer.Option("--send-model", help="To a server that lacks it and takes models.")
    ] = False,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=1x3x224x224", help="Of open inputs of a model that is sent."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document at the end.")] = False,
    config: ConfigOption = None,
) -> None:
    """Run inferences on a device, with the server's help."""
    from cans.live.logs import silence_grpc, start_logging

    silence_grpc()
    from cans.learning.constraints import Constraints
    from cans.live.device.command.runner import run_device
    from cans.live.device.hooks import Hooks
    from cans.live.device.local import parse_exit
    from cans.live.wire.accuracy import AccuracyBudget
    from cans.models.run.inputs import parse_shapes

    if obey and (as_json or log_jsonl is not None):
        raise InputError("--obey answers on standard output; leave out --json and --log-jsonl")
    if count < 1:
        raise InputError("--count must be at least 1")
    if not 0 <= interval_ms <= threading.TIMEOUT_MAX * 1e3:
        raise InputError("--interval-ms must be finite and not negative")
    start_logging("text", "warning")
    exits = tuple(parse_exit(each) for each in exit_ or ())
    codecs = _known_codecs(allow_codec)
    constraints = Constraints(min_local_depth, max_bytes, codecs, avoid_after_ms, local_until)
    run_device(
        server, model, type_, input_, count, interval_ms, log_jsonl, as_json, obey, output,
        network=network, name=name, state=state, deadline_ms=deadline_ms,
        accuracy=AccuracyBudget(max_error, min_agreement),
        constraints=constraints, local=local, exit=exits, token=token,
        seed=seed,
        tls=_client_tls(tls, tls_ca, tls_cert, tls_key),
        hooks=Hooks(slowdown=slowdown, pace_mbps=pace_mbps),
        provider=provider or (), threads=threads, optimisation=optimisation,
        prepare=prepare, traces=traces, objective=objective, fps=fps, max_memory_mb=max_memory_mb,
        max_mb_per_day=max_mb_per_day, send_model=send_model, shape=parse_shapes(shape or []),
        model_sha256=model_sha256, follow=follow, selfish=selfish, weight=weight, own_runs=own_runs,
    )  # fmt: skip


def _known_codecs(names: list[str] | None) -> frozenset[str] | None:
    if not names:
        return None
    from cans.errors import unknown_name
    from cans.models import all_codecs

    for name in names:
        if name not in all_codecs():
            raise unknown_name("codec", name, all_codecs())
    return frozenset(names)


def _client_tls(
    wanted: bool, ca: Path | None, cert: Path | None, key: Path | None
) -> ClientTls | None:
    from cans.live.wire.tls import ClientTls

    if not wanted and ca is None and cert is None and key is None:
        return None
    return ClientTls(ca, cert, key)
