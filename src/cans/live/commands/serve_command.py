"""`cans serve`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from cans.config_file import ConfigOption
from cans.errors import InputError, unknown_name
from cans.learning_options import Alpha, BetaMs, Ridge, hyperparameters
from cans.models.commands import OptimisationOption, ProviderOption

if TYPE_CHECKING:
    from cans.learning import Hyperparameters
    from cans.live.server.accepting.accepted import AcceptedModels
    from cans.live.server.server import EdgeServer
    from cans.live.split import Cutting, SplitModel
    from cans.live.wire.terms import Terms
    from cans.live.wire.tls import ServerTls

DEFAULT_STORE = "sqlite:cans.sqlite"


class Closing(Protocol):
    """Something beside a server that ends with it."""

    def close(self) -> None: ...


class Page(Closing, Protocol):
    """A page that is being shown."""

    @property
    def address(self) -> str: ...


ShowPage = Callable[["EdgeServer", str, str | None], Page]
"""Shows a server on HOST:PORT, asking for a token. A higher layer's, found in `context.obj`."""


def serve(
    context: typer.Context,
    model: Annotated[
        list[str] | None,
        typer.Option(help="ONNX file or built-in name; may be given several times."),
    ] = None,
    model_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Every model in a folder; new files are noticed."),
    ] = None,
    accept_models: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Take models from devices; needs --token-file."),
    ] = None,
    max_models: Annotated[
        int, typer.Option(help="Models of devices kept; the least used go.")
    ] = 16,
    max_model_mb: Annotated[int, typer.Option(help="Largest model taken from a device.")] = 1024,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where devices reach it.")
    ] = "0.0.0.0:7070",
    store: Annotated[
        str, typer.Option(metavar="URL", help="sqlite:FILE, postgresql://... or memory:")
    ] = DEFAULT_STORE,
    policy: Annotated[
        str | None, typer.Option(help="How the fleet learns; MODULE:NAME of your own (cans).")
    ] = None,
    delivery: Annotated[
        str, typer.Option(help="When uploads travel: immediate or next-contact.")
    ] = "immediate",
    fresh: Annotated[
        bool | None, typer.Option("--fresh/--no-fresh", help="Push changed pools to devices.")
    ] = None,
    ridge: Ridge = None,
    alpha: Alpha = None,
    beta_ms: BetaMs = None,
    codec: Annotated[
        list[str] | None, typer.Option(help="How crossing tensors may travel; repeat for several.")
    ] = None,
    max_error: Annotated[
        float | None, typer.Option(help="Most that a lossy codec may change an answer.")
    ] = None,
    min_agreement: Annotated[
        float | None, typer.Option(help="Least share of answers that keep their top output.")
    ] = None,
    features: Annotated[str, typer.Option(help="mac3, ops13 or rich.")] = "rich",
    image: Annotated[
        str, typer.Option(metavar="MEAN/STD", help="The input is a picture, normalised by these.")
    ] = "",
    shape: Annotated[
        list[str] | None, typer.Option(metavar="NAME=1x3x224x224", help="Fix open dimensions.")
    ] = None,
    max_tensors: Annotated[int, typer.Option(help="Tensors that may cross a cut.")] = 1,
    max_points: Annotated[
        int | None, typer.Option(help="Keep only this many points, the most useful.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Back-ends that run at a time.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of one back-end; 0: all cores.")] = 1,
    provider: ProviderOption = None,
    optimisation: OptimisationOption = "all",
    queue: Annotated[int, typer.Option(help="Requests that may wait for a worker.")] = 16,
    batch: Annotated[
        int,
        typer.Option(help="Waiting requests of one cut that may run together, if faster; 1: none."),
    ] = 1,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Back-ends on a Ray cluster; or local."),
    ] = None,
    min_replicas: Annotated[
        int | None, typer.Option(help="Of each model, on the cluster (1).")
    ] = None,
    max_replicas: Annotated[
        int | None, typer.Option(help="Of each model, on the cluster (4).")
    ] = None,
    gpus_per_replica: Annotated[
        float | None, typer.Option(help="Fractions share a GPU (0).")
    ] = None,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Build every back-end first (small models).")
    ] = False,
    max_message_mb: Annotated[int, typer.Option(help="Largest message.")] = 64,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Encrypt, with this certificate (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's private key (PEM).")
    ] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ask devices for certificates (mTLS).")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Lines `device token`; edit at any time.")
    ] = None,
    lowest_latency_ms: Annotated[float, typer.Option(help="Refuse latencies below this.")] = 0.0,
    highest_latency_ms: Annotated[
        float, typer.Option(help="Refuse latencies above this.")
    ] = 600_000.0,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Prometheus metrics.")
    ] = None,
    traces: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="OTLP collector of traces.")
    ] = None,
    dashboard: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Show the live page there.")
    ] = None,
    dashboard_token: Annotated[
        str | None,
        typer.Option(
            envvar="CANS_DASHBOARD_TOKEN", help="Asked for by the page; needed beyond loopback."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse to be open to everyone on the network.")
    ] = False,
    keep_days: Annotated[
        float, typer.Option(help="Forget pools and devices unused for this many days.")
    ] = 365.0,
    slowdown: Annotated[
        float, typer.Option(hidden=True, help="Testbed: back-ends take K times as long.")
    ] = 1.0,
    log: Annotated[str, typer.Option(help="json or text.")] = "text",
    config: ConfigOption = None,
) -> None:
    """Serve the back-ends of models to a fleet. What the fleet learns is kept in a store."""
    import asyncio

    from cans.live.logs import STYLES, silence_grpc, start_logging

    silence_grpc()
    from cans.live.memory import keep_memory
    from cans.live.server.model_folder import ModelFolder
    from cans.live.server.server import ServerOptions
    from cans.live.server.server import serve as serve_models
    from cans.live.splitting import load_model, split, unsafe_points
    from cans.live.wire.accuracy import AccuracyBudget
    from cans.models.run.runtime import RuntimeOptions

    if log not in STYLES:
        raise unknown_name("log style", log, STYLES)
    start_logging(log)
    keep_memory()
    numbers = hyperparameters(ridge, alpha, beta_ms)
    terms = replace(
        _terms(policy, numbers, delivery, fresh, lowest_latency_ms, highest_latency_ms),
        accuracy=AccuracyBudget(max_error, min_agreement),
    )
    more: dict[str, Any] = {} if workers is None else {"workers": workers}
    runtime = RuntimeOptions.parse(provider or (), threads, optimisation)
    if runtime.own_copies:
        typer.echo(f"provider {runtime.own_copies}", err=True)
    replicas = {
        "min_replicas": min_replicas, "max_replicas": max_replicas,
        "gpus_per_replica": gpus_per_replica,
    }  # fmt: skip
    chosen: dict[str, Any] = {name: each for name, each in replicas.items() if each is not None}
    if cluster is not None:
        from cans.live.server.cluster.options import ClusterOptions

        more["cluster"] = ClusterOptions(cluster, runtime=runtime, **chosen)
    elif chosen:
        raise InputError(f"--{min(chosen).replace('_', '-')} is of replicas: it needs --cluster")
    options = ServerOptions(
        terms, listen, store, token_file, _server_tls(tls_cert, tls_key, tls_client_ca),
        queue=queue, batch=batch, largest_message=max_message_mb << 20, keep_days=keep_days, **more,
    )  # fmt: skip
    cutting = _cutting(max_tensors, max_points, image, shape or [])
    if not model and model_dir is None and accept_models is None:
        raise InputError("give --model (an ONNX file or a built-in name), --model-dir or "
                         "--accept-models")  # fmt: skip
    if accept_models is not None and cluster is not None:
        raise InputError("--accept-models and --cluster do not go together")

    def load(source: str | Path, cut: Cutting = cutting, to_send: bool = True) -> SplitModel:
        loaded = load_model(source, cut)
        # What a device gives was tried in a process of its own, and is not run here unasked.
        left_out = unsafe_points(loaded, cut, runtime) if to_send else frozenset()
        return split(
            loaded, cut, codecs=codec or ["float32"], features=features, runtime=runtime,
            to_send=to_send, left_out=left_out,
        )  # fmt: skip

    accepted: AcceptedModels | None = None
    if accept_models is not None:
        from cans.live.server.accepting import accepted as given
        from cans.live.split import Cutting

        limits = {"largest": max_model_mb << 20, "most": max_models}
        how = given.AcceptOptions(accept_models, **limits, cutting=Cutting(max_tensors, max_points))
        accepted = given.AcceptedModels(how, lambda path, cut: load(path, cut, to_send=False))

    models = [load(each) for each in model or ()]
    folder = ModelFolder(model_dir, load) if model_dir is not None else None
    options.warn_if_open(strict)

    if prepare:
        from cans.live.preparing import prepare_backs

        for each in models:
            prepare_backs(each)
    if slowdown != 1.0:
        from cans.live.stretching import stretch

        for each in models:
            stretch(each, slowdown)

    def ready(server: EdgeServer) -> None:
        if metrics is not None:
            from cans.live.server.metrics import expose

            expose(server, metrics)
        if traces is not None:
            from cans.live.server.fleet.traces import ServerTraces

            closing.append(ServerTraces(server.recorder, traces))
        if dashboard is not None:
            show_page: ShowPage = context.obj
            page = show_page(server, dashboard, dashboard_token)
            closing.append(page)
            typer.echo(f"live page: {page.address}", err=True)
        names = ", ".join(each.name for each in server.catalogue.models) or "what devices send"
        typer.echo(f"serving {names} on port {server.port}", err=True)

    closing: list[Closing] = []
    try:
        asyncio.run(serve_models(models, options, ready, folder, accepted))
    finally:
        for thing in closing:
            thing.close()


def _terms(
    policy: str | None,
    numbers: Hyperparameters,
    delivery: str,
    fresh: bool | None,
    lowest: float,
    highest: float,
) -> Terms:
    from cans.learning.plausibility import Limits
    from cans.learning.policies import DEFAULT_POLICY
    from cans.live.wire.terms import Terms
    from cans.own_policy import find_policy

    chosen = find_policy(policy or DEFAULT_POLICY)
    if fresh is None:
        fresh = chosen.fresh
    if not lowest <= highest:
        raise InputError("--lowest-latency-ms must not be above --highest-latency-ms")
    return Terms(chosen, numbers, delivery, fresh, Limits(lowest, highest))


def _server_tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> ServerTls | None:
    from cans.live.wire.tls import ServerTls

    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise InputError("TLS needs both --tls-cert and --tls-key")
    return ServerTls(cert, key, client_ca)


def _cutting(max_tensors: int, max_points: int | None, image: str, shapes: list[str]) -> Cutting:
    from cans.live.split import Cutting
    from cans.models.run.inputs import parse_ranges

    highest, lowest = parse_ranges(shapes)
    varying = {name: low for name, low in lowest.items() if low != highest[name]}
    pairs = tuple(highest.items()), tuple(varying.items())
    return Cutting(max_tensors, max_points, image, *pairs)
