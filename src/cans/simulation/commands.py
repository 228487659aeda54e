"""`cans simulate`, `cans sweep` and `cans reproduce`; the lists are in `listing.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cans.errors import InputError
from cans.learning.policies import DEFAULT_POLICY, Hyperparameters
from cans.learning_options import Alpha, BetaMs, Ridge, hyperparameters
from cans.simulation import listing

if TYPE_CHECKING:
    from rich.console import Console

    from cans.simulation.reproduce.prototype import Measure
    from cans.simulation.run import Simulation

Dask = Annotated[str | None, typer.Option(help="Address of a Dask scheduler to run on.")]
Ray = Annotated[str | None, typer.Option(help="Address of a Ray cluster to run on, or local.")]

SECONDS_PER_LINE = 30.0  # of progress, where there is no terminal


def register(app: typer.Typer, measure_prototype: Measure) -> None:
    """Mount this layer's commands; real processes, for `--prototype`, are a higher layer's."""
    panel = "Study"
    app.command(
        rich_help_panel=panel,
        epilog="\b\nExample:\n  cans simulate --model vgg16 --policy cans --seeds 20 --json",
    )(simulate)
    app.command(
        rich_help_panel=panel,
        epilog="\b\nExample:\n  cans sweep grid.toml --dask tcp://head:8786 --out grid.parquet",
    )(sweep)
    app.command(
        rich_help_panel=panel, epilog="\b\nExample:\n  cans reproduce --quick --out report"
    )(_reproduce(measure_prototype))
    listing.register(app)


def simulate(
    model: Annotated[str, typer.Option(help="vgg16, resnet50 or vit_b16.")] = "vgg16",
    policy: Annotated[
        str, typer.Option(help="How it learns; `cans policies` lists; or MODULE:NAME.")
    ] = DEFAULT_POLICY,
    world: Annotated[
        str, typer.Option(help="Where it learns; `cans worlds` lists them; or a file, WORLD.toml.")
    ] = "paper",
    devices: Annotated[
        int | None, typer.Option(help="Size of the fleet; 25, or what WORLD.toml says.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Inferences, one device each.")] = 2500,
    seeds: Annotated[int, typer.Option(help="Independent runs.")] = 3,
    gamma: Annotated[
        float | None,
        typer.Option(help="How much devices of a type differ (the world's)."),
    ] = None,
    gamma_mode: Annotated[str, typer.Option(help="Drawn per device, or every round.")] = "device",
    noise: Annotated[
        str | None, typer.Option(help="gaussian, truncated or lognormal; the world's by default.")
    ] = None,
    participation: Annotated[str, typer.Option(help="uniform or round-robin.")] = "uniform",
    engine: Annotated[
        str | None, typer.Option(help="fast (compiled; the default with numba) or reference.")
    ] = None,
    delivery: Annotated[str, typer.Option(help="immediate or next-contact.")] = "immediate",
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv|NAME", help="World trace: measured inferences."),
    ] = None,
    delay: Annotated[
        int | None,
        typer.Option(help="Rounds until a device hears of one; the world's by default."),
    ] = None,
    pool_age: Annotated[
        float, typer.Option(help="Rounds between two pulls of pools that should be fresh.")
    ] = 0.0,
    ridge: Ridge = None,
    alpha: Alpha = None,
    beta_ms: BetaMs = None,
    workers: Annotated[
        int | None, typer.Option(help="World crowded: requests that the server runs at once (1).")
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(help="World crowded: utilisation if all chose as if alone (0.9)."),
    ] = None,
    fleet: Annotated[
        str | None,
        typer.Option(help="World crowded: mixed, orin-nano, xavier-nx or rpi5 (mixed)."),
    ] = None,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="World crowded: all devices ask at the same moment.")
    ] = False,
    selfish: Annotated[
        bool, typer.Option("--selfish", help="World crowded: nobody pays for others' waiting.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Simulate one policy in one world and report its regret."""
    numbers = hyperparameters(ridge, alpha, beta_ms)
    asked = {"workers": workers, "load": load, "fleet": fleet}
    crowd: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    crowd |= {"at_once": True} if at_once else {}
    crowd |= {"selfish": True} if selfish else {}
    if world == "crowded":
        _refuse_in_a_crowd(
            gamma=(gamma, None), gamma_mode=(gamma_mode, "device"), noise=(noise, None),
            participation=(participation, "uniform"), engine=(engine, None),
            delivery=(delivery, "immediate"), trace=(trace, None), delay=(delay, None),
            pool_age=(pool_age, 0.0),
        )  # fmt: skip
        _simulate_crowd(
            {"model": model, "policy": policy, "rounds": rounds, **crowd}
            | ({} if devices is None else {"devices": devices}),
            numbers, seeds, as_json,
        )  # fmt: skip
        return
    if crowd:
        raise InputError(f"{_options(crowd)}: only in world 'crowded'")
    from cans.simulation.run import simulate as run

    with progress_bar(f"{policy} in {world}", seeds) as advance:
        result = run(
            model,
            policy,
            world=world,
            devices=devices,
            rounds=rounds,
            seeds=seeds,
            gamma=gamma,
            gamma_mode=gamma_mode,
            noise=noise,
            participation=participation,
            engine=engine,
            delivery=delivery,
            trace=trace,
            pool_age=pool_age,
            delay=delay,
            hyperparameters=numbers,
            progress=advance,
            compiling=_say_compiling,
            processes=True,
        )
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
    else:
        _print_table(result)


def _say_compiling() -> None:
    typer.echo("compiling the engine, once: this takes a few minutes", err=True)


def _options(names: Iterable[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def _refuse_in_a_crowd(**given: tuple[Any, Any]) -> None:
    """Raise if an option that world `crowded` would ignore is not at its default: (value,
    default)."""
    changed = [name for name, (value, default) in given.items() if value != default]
    if changed:
        raise InputError(f"{_options(changed)}: not in world 'crowded'")


def _simulate_crowd(
    values: dict[str, Any], numbers: Hyperparameters, seeds: int, as_json: bool
) -> None:
    from cans.simulation.crowd import CrowdSettings, simulate_crowd

    what = CrowdSettings(**values, hyperparameters=numbers)
    with progress_bar(f"{what.policy_name} in a crowd", seeds) as advance:
        document = simulate_crowd(what, seeds, advance)
    if as_json:
        typer.echo(json.dumps(document))
    else:
        _print_crowd(document)


def _print_crowd(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{document['policy']} on {document['model']}, {document['devices']} devices, "
        f"{document['workers']} workers at load {document['load']:g}"
    )
    shown = {
        "seed": "seed",
        "mean latency (ms)": "mean_latency_ms",
        "best assignment (ms)": "best_static_ms",
        "wait (ms)": "wait_ms",
        "toll (ms)": "toll_ms",
        "quotes": "quotes",
        "probes": "probes",
        "changes per device and s": "switches_per_device_s",
    }
    for heading in shown:
        table.add_column(heading, justify="right")
    for run in document["runs"]:
        cells = (run[name] for name in shown.values())
        table.add_row(*(f"{each:.3f}" if isinstance(each, float) else str(each) for each in cells))
    Console().print(table)


def sweep(
    what: Annotated[
        list[str],
        typer.Argument(metavar="SWEEP.toml | show FILE", help="What to run, or a file to show."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The results, .parquet or .csv; SWEEP.parquet by default.")
    ] = None,
    dask: Dask = None,
    ray: Ray = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes of this machine; one per core by default.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Drop cells of the file that are not of this sweep.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Where to draw it, as SVG; beside the results by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Run a grid of simulations. It may vary policies, models, worlds, fleet sizes, options and
    seeds; an interrupted sweep goes on where it was. `cans sweep show FILE` prints the results of
    one."""
    from cans.simulation.sweep import command

    if what[0] == "show" and len(what) == 2:
        command.show(Path(what[1]), "", as_json, plot)
        return
    if len(what) != 1:
        raise InputError("usage: cans sweep SWEEP.toml, or cans sweep show FILE")
    where = command.Where(dask, ray, workers)
    file, about = command.sweep(Path(what[0]), out, where, replace)
    command.show(file, about, as_json, plot or file.with_suffix(".svg"))


def _reproduce(measure_prototype: Measure) -> Callable[..., None]:
    def reproduce(
        out: Annotated[
            Path, typer.Option(help="Folder for figures, claims.json and report.html.")
        ] = Path("report"),
        quick: Annotated[bool, typer.Option("--quick", help="3 seeds and fewer sweeps.")] = False,
        prototype: Annotated[
            bool,
            typer.Option(
                "--prototype", help="Run the paper's prototype too, on real processes; minutes."
            ),
        ] = False,
        dask: Dask = None,
        ray: Ray = None,
    ) -> None:
        """Redraw the paper's simulated figures and check its claims."""
        from cans.simulation.reproduce import reproduce as run

        measure = measure_prototype if prototype else None
        run(out, quick=quick, measure=measure, dask=dask, ray=ray)

    return reproduce


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error that leaves nothing behind; without a terminal a line now and then.
    Standard output is left alone."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(console, title, total)
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda steps: progress.advance(task, steps)


def _lines(console: Console, title: str, total: int) -> Callable[[int], None]:
    began = said = monotonic()
    done = 0

    def advance(steps: int) -> None:
        nonlocal done, said
        done += steps
        if monotonic() - said >= SECONDS_PER_LINE:
            said = monotonic()
            left = (said - began) * (total - done) / max(done, 1)
            console.print(f"{title}: {done / total:.0%}, about {left:.0f} s left")

    return advance


def _print_table(result: Simulation) -> None:
    from rich.console import Console
    from rich.table import Table

    document = result.to_dict()
    table = Table(title=f"{document['policy']} on {document['model']}, world {document['world']}")
    for heading in ("seed", "regret (s)", "mean latency (ms)", "error (ms)", "uploads"):
        table.add_column(heading, justify="right")
    for label, row in (
        *((str(run["seed"]), run) for run in document["runs"]),
        ("mean", document["mean"]),
        ("std", document["std"]),
    ):
        error = row["estimation_error_ms"]
        table.add_row(
            label,
            f"{row['regret_ms'] / 1e3:.3f}",
            f"{row['mean_latency_ms']:.3f}",
            "-" if error is None else f"{error:.3f}",
            f"{row['uploads']:.0f}",
        )
    console = Console()
    console.print(table)
    console.print(f"{document['rounds_per_second']:,.0f} rounds/s, engine {result.engine}")
