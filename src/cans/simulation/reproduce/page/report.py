"""report.html: one page that needs nothing else, from judgements and sections."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

from cans import __version__
from cans.simulation.reproduce.claims.bar import Bar
from cans.simulation.reproduce.claims.verdicts import VERDICTS, Check, Judgement, Verdicts
from cans.simulation.reproduce.figures.drawing import panel_svg, stroke
from cans.simulation.reproduce.figures.plots import Figure
from cans.simulation.reproduce.page.section import Section
from cans.simulation.reproduce.page.tables import Table

_NOTES = (
    "<strong>Units.</strong> Read literally (MACs over speed, float32 bits over 10 Mbps), sending "
    "even the smallest tensor takes longer than computing everything on the device, for every "
    "device and model. Purely local inference would then have no regret, which contradicts the "
    "paper's own figures. If the size that crosses is counted in <em>elements</em> over 10⁷ per "
    "second, a Raspberry Pi should offload on all three models and the paper's orderings appear. "
    "World “paper” is that reading; world “literal” is the printed one. Verdicts are about world "
    "“paper”.",
    "<strong>Settings.</strong> 25 devices (8 Orin Nano, 10 Xavier NX, 7 Raspberry Pi 5), 2,500 "
    "rounds, noise of 5 ms on each half, ridge 0.01, α = 1, β = 50 ms, five offline runs per "
    "device. Regret uses expected latencies; average latency is what was measured.",
    "<strong>Verdicts.</strong> A claim is split into statements. One about two methods holds if "
    "the 95 % interval of their difference, paired by seed, excludes zero on the right side; one "
    "about two settings uses Welch's interval. <em>Reproduced</em>: all statements hold; "
    "<em>partly</em>: at least half; <em>not reproduced</em>: fewer. Nothing is judged by hand.",
    "<strong>Bands</strong> are 95 % t-intervals of the mean over seeds. Point at a curve to read "
    "its last value.",
)
_NO_PROTOTYPE = (
    "<strong>Not here.</strong> C9 (up to 50 % below LinUCB) and C14 (FedLinUCB comes close when "
    "devices are alike) are claims about the hardware prototype: <code>cans reproduce "
    "--prototype</code> runs it on real processes."
)
_PROTOTYPE = (
    "<strong>Prototype.</strong> Real processes, models and links of this machine in the place of "
    "two Jetsons and a workstation. Both methods of a comparison took turns, so a difference is "
    "paired by round; its interval speaks for the rounds of one run, which follow on each other, "
    "and not for other runs."
)
_AGAIN = (
    "pip install 'cans-edge[sim]'\n"
    "cans reproduce --out report            # 20 seeds\n"
    "cans reproduce --out report --quick    # 3 seeds, fewer values\n"
    "cans reproduce --out report --prototype    # and the prototype's claims, on real processes\n"
    "cans simulate --model vgg16 --policy fedlinucb-dw --world paper --seeds 20"
)


def render(verdicts: Sequence[Verdicts], sections: Sequence[Section], seeds: int) -> str:
    """The page."""
    style = files("cans.simulation.reproduce.page").joinpath("report.css").read_text("utf-8")
    contents = "".join(
        f'<li><a href="#{_anchor(each.title)}">{escape(each.title)}</a></li>' for each in sections
    )
    body = "".join(_section(each) for each in sections)
    measured = any(each.prototype for each in verdicts)
    last = _PROTOTYPE if measured else _NO_PROTOTYPE
    notes = "".join(f"<p>{note}</p>" for note in (*_NOTES, last))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>CANS: the paper's simulations, run again</title><style>{style}</style>"
        "</head><body>"
        "<main><header><h1>The paper's simulations, run again</h1>"
        f'<p class="lead">{_lead(verdicts, seeds)}</p></header>'
        f"{_claims(verdicts, measured)}"
        f'<nav aria-label="Contents"><ol>{contents}</ol></nav>{body}'
        f'<section id="method"><h2>How to read this</h2>{notes}</section>'
        f'<section id="again"><h2>Run it again</h2><pre>{escape(_AGAIN)}</pre>'
        f"<p>{escape(_versions(seeds))}</p></section></main></body></html>\n"
    )


def _lead(verdicts: Sequence[Verdicts], seeds: int) -> str:
    simulated = [each.paper for each in verdicts if each.paper]
    text = (
        "Fleets of unequal devices learn where to cut a neural network between themselves and one "
        f"edge server. Of the paper's {len(simulated)} claims that a simulation can check, with "
        f"{seeds} seeds: <strong>{_counted(simulated)}</strong>."
    )
    if measured := [each.prototype for each in verdicts if each.prototype]:
        text += (
            f" Of {len(measured)} about its prototype, on real processes: "
            f"<strong>{_counted(measured)}</strong>."
        )
    if seeds < 10:
        text += (
            f" <em>With {seeds} seeds intervals are wide, and much that is true cannot be shown: "
            "run without <code>--quick</code> for verdicts worth quoting.</em>"
        )
    return text


def _counted(judgements: Sequence[Judgement]) -> str:
    counts = Counter(each.verdict for each in judgements)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)


def _claims(verdicts: Sequence[Verdicts], measured: bool) -> str:
    heads = ["World “paper”", "“literal”", *(["Prototype"] if measured else [])]
    rows = "".join(_claim(each, measured) for each in verdicts)
    columns = "".join(f"<th>{head}</th>" for head in heads)
    return (
        '<section id="claims"><h2>What holds</h2><div class="wide"><table class="claims"><thead>'
        "<tr><th></th><th>Claim, and its key number (VGG-16 / ResNet-50 / ViT-B/16)</th>"
        f"{columns}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _claim(verdicts: Verdicts, measured: bool) -> str:
    said = "".join(
        f"<details><summary>{escape(_where(each, verdicts) + each.key)}</summary>"
        f"{_statements(each)}</details>"
        for each in (verdicts.prototype, verdicts.paper)
        if each
    )
    chips = [verdicts.paper, verdicts.literal, *([verdicts.prototype] if measured else [])]
    cells = "".join(f"<td>{_chip(each) if each else '–'}</td>" for each in chips)
    sentence = verdicts.foremost.claim
    return (
        f'<tr id="{sentence.id}"><th scope="row">{sentence.id}</th>'
        f"<td>{escape(sentence.text)}{said}</td>{cells}</tr>"
    )


def _where(judgement: Judgement, verdicts: Verdicts) -> str:
    """Which of two it is, where there are two."""
    if not (verdicts.paper and verdicts.prototype):
        return ""
    return "prototype: " if judgement is verdicts.prototype else "simulated: "


def _statements(judgement: Judgement) -> str:
    return f"{_list(judgement.checks)}<p>{escape(judgement.remark)}</p>"


def _list(checks: Sequence[Check]) -> str:
    items = "".join(
        f'<li class="{"yes" if check.holds else "no"}">{escape(check.statement)}'
        f"<small>{escape(_numbers(check.numbers))}</small></li>"
        for check in checks
    )
    return f"<ul>{items}</ul>"


def _numbers(numbers: dict[str, object]) -> str:
    shown = []
    for name, value in numbers.items():
        words = name.replace("_", " ")
        if isinstance(value, dict):
            text = f"{value['mean']:.3g} ({value['low']:.3g} to {value['high']:.3g})"
        elif isinstance(value, list):
            text = ", ".join(value) or "none"
        else:
            text = f"{value:.3g}" if isinstance(value, float) else str(value)
        shown.append(f"{words}: {text}".replace(": -", ": −").replace("(-", "(−"))
    return "; ".join(shown)


def _chip(judgement: Judgement) -> str:
    kind = judgement.verdict.replace(" ", "-")
    return f'<span class="chip {kind}">{judgement.verdict}</span>'


def _anchor(words: str) -> str:
    return "".join(each if each.isalnum() else "-" for each in words.lower())


def _section(section: Section) -> str:
    text = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in section.text)
    figures = "".join(_figure(figure) for figure in section.figures)
    tables = "".join(_table(table) for table in section.tables)
    return (
        f'<section id="{_anchor(section.title)}"><h2>{escape(section.title)}</h2>'
        f"{text}{_bars(section.bars)}{figures}{tables}</section>"
    )


_BAR_CHIPS = {
    "held": "reproduced", "missed": "not-reproduced", "undecided": "partly", "not run": "partly"
}  # fmt: skip


def _bars(bars: Sequence[Bar]) -> str:
    if not bars:
        return ""
    rows = "".join(
        f'<tr id="{bar.id}"><th scope="row">{bar.id}</th>'
        f"<td>{escape(bar.text)}<details><summary>{escape(bar.key)}</summary>"
        f"{_list(bar.checks)}</details>{_missed(bar)}</td>"
        f'<td><span class="chip {_BAR_CHIPS[bar.verdict]}">{bar.verdict}</span></td></tr>'
        for bar in bars
    )
    return (
        '<div class="wide"><table class="claims"><thead><tr><th></th><th>What must hold</th>'
        f"<th>Verdict</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _missed(bar: Bar) -> str:
    """A bar that is missed or undecided says so in the open."""
    return "".join(
        f"<details open><summary>{word}</summary>{_list(found)}</details>"
        for word, found in (("Missed", bar.missed), ("Undecided", bar.undecided))
        if found
    )


def _figure(figure: Figure) -> str:
    rows = []
    for number, (heading, panels) in enumerate(figure.rows):
        drawn = "".join(
            panel_svg(panel, f"{figure.name}-{number}-{column}")
            for column, panel in enumerate(panels)
        )
        rows.append(f'<h3>{escape(heading)}</h3><div class="panels">{drawn}</div>')
    legend = "".join(
        f'<li><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 34 8" aria-hidden="true">'
        f'<path d="M1 4h32" fill="none" {stroke(each.style)}/></svg>{escape(each.title)}</li>'
        for each in figure.legend()
    )
    return (
        f'<figure id="figure-{figure.name}"><ul class="legend">{legend}</ul>'
        f"{''.join(rows)}</figure>"
    )


def _table(table: Table) -> str:
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    heads = "".join(f'<th scope="col">{escape(each)}</th>' for each in table.headings)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(
            f"<td{_shade(table, number, column)}>{escape(cell)}</td>"
            for column, cell in enumerate(row[1:])
        )
        + "</tr>"
        for number, row in enumerate(table.rows)
    )
    return (
        f'<div class="wide"><table class="numbers">{caption}'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _shade(table: Table, row: int, column: int) -> str:
    if not table.heat or not table.heat[row][column]:
        return ""
    value = table.heat[row][column]
    colour = "213, 94, 0" if value > 0 else "0, 158, 115"
    return f' style="background: rgba({colour}, {min(abs(value), 1.0) * 0.55:.2f})"'


def _versions(seeds: int) -> str:
    def installed(name: str) -> str:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return f"no {name}"

    libraries = ", ".join(installed(name) for name in ("numpy", "numba"))
    return (
        f"Seeds 0 to {seeds - 1}; cans {__version__}, Python {platform.python_version()}, "
        f"{libraries}. The same seeds give the same numbers, up to rounding."
    )
