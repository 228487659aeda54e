"""`cans testbed run` and `cans demo`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cans.testbed.run.interruption import stopped_by_signals

if TYPE_CHECKING:
    from cans.simulation.reproduce.prototype import Prototype


def register(app: typer.Typer) -> None:
    """Mount this layer's commands."""
    testbed = typer.Typer(
        help="Real processes, real models, shaped links.", no_args_is_help=True,
        rich_markup_mode=None, epilog="\b\nExample:\n  cans testbed run link-change",
    )  # fmt: skip
    testbed.command("run", epilog="\b\nExample:\n  cans testbed run link-change --rounds 20")(run)
    testbed.command("trace", epilog="\b\nExample:\n  cans testbed trace traces --runs 6")(trace)
    testbed.command("list", epilog="\b\nExample:\n  cans testbed list")(list_experiments)
    testbed.command("warm", hidden=True)(warm)
    app.add_typer(testbed, name="testbed", rich_help_panel="Study")
    app.command(
        rich_help_panel="Run a fleet", epilog="\b\nExample:\n  cans demo --devices 6 --seconds 90"
    )(demo)


def run(
    experiment: Annotated[str, typer.Argument(metavar="EXPERIMENT.toml|NAME", help="What to run.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Results; out/testbed/NAME if not given.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Instead of the experiment's.")] = None,
    mode: Annotated[str | None, typer.Option(help="Instead of the experiment's.")] = None,
    network: Annotated[
        str | None, typer.Option(help="auto, namespaces or loopback; instead of the experiment's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Run an experiment on real processes. It leaves results and figures, and no process."""
    from dataclasses import replace

    from cans.testbed.report.report import open_folder, print_report, write_report
    from cans.testbed.run.experiment_run import run_model
    from cans.testbed.run.reading import read_experiment

    wanted = read_experiment(experiment)
    given: dict[str, Any] = {"rounds": rounds, "mode": mode, "network": network}
    wanted = replace(wanted, **{key: value for key, value in given.items() if value is not None})
    folder = out or Path("out") / "testbed" / wanted.name
    open_folder(folder)
    with stopped_by_signals():
        outcomes = [run_model(wanted, model, _say) for model in wanted.models]
    document = write_report(wanted, outcomes[0].network, outcomes, folder)
    if as_json:
        typer.echo(json.dumps(document))
    else:
        print_report(document)
        typer.echo(f"results: {folder}", err=True)


def trace(
    experiment: Annotated[
        str, typer.Argument(metavar="EXPERIMENT.toml|NAME", help="Whose devices, links, models.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="For MODEL.csv.")] = Path("out/traces"),
    runs: Annotated[int, typer.Option(help="Of every choice.", min=1)] = 6,
    model: Annotated[
        list[str] | None, typer.Option(help="Instead of the experiment's; may be repeated.")
    ] = None,
) -> None:
    """Measure every choice on every kind of device. The CSV files are for `cans simulate --world
    trace`. No policy runs: choices take turns, so that a busy moment hits all alike."""
    from cans.testbed.report.report import open_folder
    from cans.testbed.run.reading import read_experiment
    from cans.testbed.run.tracing import measure_trace

    wanted = read_experiment(experiment)
    open_folder(out)
    with stopped_by_signals():
        for name in model or wanted.models:
            path = out / f"{Path(name).stem}.csv"
            rows = measure_trace(wanted, name, runs, path, _say)
            typer.echo(f"{path}: {rows} inferences", err=True)


def measure_prototype(folder: Path, quick: bool) -> Prototype:
    """What `cans reproduce --prototype` asks of this layer."""
    from cans.testbed.prototype.running import measure_prototype as measure

    return measure(folder, quick)


def demo(
    devices: Annotated[int, typer.Option(help="Unequal devices.", min=1, max=16)] = 4,
    seconds: Annotated[float, typer.Option(help="How long, after the start.", min=5)] = 60.0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="For the picture.")] = Path("out/demo"),
    dashboard: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Of the live page; any free port by default."),
    ] = None,
    look: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the live page in a browser.")
    ] = True,
) -> None:
    """Watch a fleet learn, adapt and do without its server. The link becomes slow, and the server
    is killed for a while."""
    from cans.testbed.demo.demo import has_a_screen, page_address, run_demo
    from cans.testbed.report.report import open_folder

    open_folder(out)
    with stopped_by_signals():
        run_demo(devices, seconds, out, page_address(dashboard), look and has_a_screen())


def warm(
    model: str,
    servers: list[str],
    features: Annotated[str, typer.Option()] = "rich",
    codec: Annotated[list[str] | None, typer.Option()] = None,
    max_points: Annotated[int | None, typer.Option()] = None,
) -> None:
    """The testbed's own: run every back-end of servers, from a process beside them."""
    from cans.testbed.run.warming import warm_servers

    warm_servers(model, servers, codec or ["float32"], features, max_points)


def list_experiments() -> None:
    """Name the experiments that come with the package."""
    from cans.testbed.run.reading import read_experiment, shipped

    for name in shipped():
        typer.echo(f"{name:14} {read_experiment(name).title}")


def _say(text: str) -> None:
    typer.echo(text, err=True)
