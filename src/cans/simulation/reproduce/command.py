"""`cans reproduce`: run every experiment, judge every claim, and write the report."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from os import replace
from pathlib import Path
from threading import Timer

from cans.errors import InputError
from cans.simulation.commands import progress_bar
from cans.simulation.engines.compiled import numba_installed
from cans.simulation.reproduce.beyond.bars import judge_bars
from cans.simulation.reproduce.beyond.crowded import (
    Crowds,
    crowd_runs,
    everyone_at_once,
    run_crowds,
)
from cans.simulation.reproduce.beyond.section import beyond_document, beyond_the_paper
from cans.simulation.reproduce.beyond.studies import Beyond, load_grids, run_beyond
from cans.simulation.reproduce.claims.bar import Bar
from cans.simulation.reproduce.claims.claims import CLAIMS
from cans.simulation.reproduce.claims.verdicts import Judgement, by_claim, claims_document, judge
from cans.simulation.reproduce.figures.drawing import figure_svg
from cans.simulation.reproduce.page.report import render
from cans.simulation.reproduce.page.sections import SECTIONS
from cans.simulation.reproduce.prototype import Measure, Prototype
from cans.simulation.reproduce.studies.experiments import load_experiments
from cans.simulation.reproduce.studies.outcomes import Results, play_one, run_studies
from cans.simulation.workers.workers import Workers, open_workers

SEEDS, QUICK_SEEDS = 20, 3


def reproduce(
    out: Path,
    *,
    quick: bool = False,
    measure: Measure | None = None,
    dask: str | None = None,
    ray: str | None = None,
) -> None:
    """Write figures, claims.json and report.html into `out`, all of them or none; `measure` runs
    the prototype too, `dask` or `ray` is the address of a cluster to run the simulations on."""
    if not numba_installed():
        raise InputError("cans reproduce needs numba: pip install 'cans-edge[sim]'")
    with _finished_together(out) as folder, _cluster(dask, ray) as workers:
        results = run_experiments(quick, workers)
        started = time.perf_counter()
        beyond = run_beyond_the_paper(quick, workers)
        elapsed = time.perf_counter() - started
        crowds = run_everyone_at_once(quick)
        prototype = measure(folder / "prototype", quick) if measure is not None else None
        judgements, bars = write_report(results, folder, beyond, prototype, crowds)
    _print_summary(judgements, results.seeds)
    if prototype is not None:
        _print_verdicts("The paper's prototype, on real processes", prototype.judgements)
    _print_bars(bars, elapsed)
    _print_places(out)


@contextmanager
def _cluster(dask: str | None, ray: str | None) -> Iterator[Workers | None]:
    """The cluster that was asked for; None: this machine's threads."""
    if dask is None and ray is None:
        yield None
        return
    workers = open_workers(dask, ray)
    try:
        yield workers
    finally:
        workers.close()


def run_experiments(quick: bool, workers: Workers | None = None) -> Results:
    """Every study of every experiment, each once."""
    experiments = load_experiments(quick)
    studies = list(dict.fromkeys(s for each in experiments.values() for s in each.studies()))
    seeds = QUICK_SEEDS if quick else SEEDS
    with _patience("compiling the engine, once: this takes a few minutes"):
        play_one(studies[0], 0)
    with progress_bar(f"{len(studies)} settings", len(studies) * seeds) as advance:
        outcomes = run_studies(studies, seeds, advance, workers)
    return Results(outcomes, experiments, seeds)


def run_beyond_the_paper(quick: bool, workers: Workers | None = None) -> Beyond:
    """Policy `cans` beside the others in all worlds; apart, so that its time is known."""
    wanted = load_grids(quick)
    with progress_bar(f"beyond the paper: {len(wanted)} settings", sum(wanted.values())) as advance:
        return run_beyond(wanted, advance, workers)


def run_everyone_at_once(quick: bool) -> Crowds:
    """World `crowded`, whose inferences overlap: an event simulation on this machine."""
    wanted = crowd_runs(quick)
    with progress_bar(f"everyone at once: {len(wanted)} settings", sum(wanted.values())) as advance:
        return run_crowds(wanted, advance)


def write_report(
    results: Results,
    folder: Path,
    beyond: Beyond | None = None,
    prototype: Prototype | None = None,
    crowds: Crowds | None = None,
) -> tuple[list[Judgement], list[Bar]]:
    """Judge and draw; returns the judgements of world `paper`, and the bars of our own policy."""
    paper, literal = (
        [judge(claim, results, world) for claim in CLAIMS] for world in ("paper", "literal")
    )
    measured = prototype.judgements if prototype is not None else ()
    verdicts = by_claim(paper, literal, measured)
    sections = [make(results) for make in SECTIONS]
    if prototype is not None:
        sections.append(prototype.section)
    bars = []
    if beyond is not None:
        bars = judge_bars(beyond)
        sections.append(beyond_the_paper(beyond, bars))
        text = json.dumps(beyond_document(beyond, bars), indent=2, ensure_ascii=False)
        (folder / "beyond.json").write_text(text + "\n", "utf-8")
    if crowds is not None:
        sections.append(everyone_at_once(crowds))
    (folder / "figures").mkdir()
    for figure in (figure for section in sections for figure in section.figures):
        (folder / "figures" / f"{figure.name}.svg").write_text(figure_svg(figure), "utf-8")
    document = json.dumps(claims_document(verdicts), indent=2, ensure_ascii=False)
    (folder / "claims.json").write_text(document + "\n", "utf-8")
    page = render(verdicts, sections, results.seeds)
    (folder / "report.html").write_text(page, "utf-8")
    return paper, bars


@contextmanager
def _finished_together(out: Path) -> Iterator[Path]:
    """A folder whose files move into `out` at the end; if that never comes, nothing is left."""
    existed = out.exists()
    if existed and not out.is_dir():
        raise InputError(f"--out must be a folder, and {out} is a file")
    try:
        out.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=out))
    except OSError as error:
        raise InputError(f"cannot write to --out {out}: {error.strerror}") from None
    try:
        yield hidden
        # the page comes last: whoever sees it sees the files it belongs to
        for file in sorted(hidden.rglob("*.*"), key=lambda each: each.suffix == ".html"):
            place = out / file.relative_to(hidden)
            place.parent.mkdir(parents=True, exist_ok=True)
            replace(file, place)
    except OSError as error:
        raise InputError(f"cannot write to --out {out}: {error.strerror}") from None
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        if not existed:
            with suppress(OSError):
                out.rmdir()  # only if nothing came


@contextmanager
def _patience(reason: str) -> Iterator[None]:
    """Say why it takes so long, if it does."""

    def say() -> None:
        from rich.console import Console

        Console(stderr=True).print(reason)

    timer = Timer(8.0, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _print_summary(judgements: Sequence[Judgement], seeds: int) -> None:
    from rich.console import Console

    _print_verdicts(f"The paper's claims, world paper, {seeds} seeds", judgements)
    if seeds < SEEDS:
        Console().print(
            f"{seeds} seeds make wide intervals: run without --quick to quote a verdict."
        )


def _print_verdicts(title: str, judgements: Sequence[Judgement]) -> None:
    rows = [(each.claim.id, each.verdict, each.key) for each in judgements]
    _print_rows(title, ("claim", "key number (VGG-16 / ResNet-50 / ViT-B/16)"), rows)


def _print_bars(bars: Sequence[Bar], elapsed: float) -> None:
    rows = [(bar.id, bar.verdict, f"{bar.text} {bar.key.capitalize()}.") for bar in bars]
    title = f"Beyond the paper, in {elapsed:.0f} s"
    _print_rows(title, ("bar", "what must hold of policy cans"), rows)


COLOURS = {
    "reproduced": "green", "partly": "yellow", "not reproduced": "red",
    "held": "green", "missed": "red", "undecided": "yellow", "not run": "yellow",
}  # fmt: skip


def _print_rows(
    title: str, headings: tuple[str, str], rows: Sequence[tuple[str, str, str]]
) -> None:
    """What was judged, the verdict in its colour, and why."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column(headings[0])
    table.add_column("verdict", no_wrap=True)
    table.add_column(headings[1], ratio=1)
    for name, verdict, why in rows:
        table.add_row(name, f"[{COLOURS[verdict]}]{verdict}[/]", why)
    Console().print(table)


def _print_places(out: Path) -> None:
    from rich.console import Console

    console = Console()
    console.print(f"picture: {out / 'figures' / 'regret.svg'}", soft_wrap=True)
    console.print(f"report:  {out / 'report.html'}", soft_wrap=True)
