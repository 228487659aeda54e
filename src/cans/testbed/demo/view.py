"""The demo on the screen: a live table in a terminal, plain lines anywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cans.testbed.demo.story import Sample, Story

_LINES_EVERY = 5.0  # seconds, without a terminal


class View:
    """Where the demo is shown."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console()
        self._live: Any = None
        self._next_lines = 0.0
        self._told = 0

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def live(self, story: Story) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        from rich.live import Live

        with Live(_table(story), console=self._console, refresh_per_second=5) as self._live:
            yield
        self._live = None

    def show(self, story: Story) -> None:
        """Draw the table again, or now and then a few lines."""
        if self._live is not None:
            self._live.update(_table(story))
            return
        for seconds, text in story.events[self._told :]:
            self.say(f"[{seconds:4.0f} s] {text}".replace("[", "\\["))
        self._told = len(story.events)
        if story.now() >= self._next_lines:
            self._next_lines = story.now() + _LINES_EVERY
            for cells in _rows(story):
                device, kind, where, now, since, local, offload = cells
                self.say(
                    f"\\[{story.now():4.0f} s] {device} ({kind}): {where}, now {now} ms, since the "
                    f"start {since} ms; local {local} ms, full offload {offload} ms"
                )

    def summary(self, story: Story) -> None:
        """Means of each part of the story, beside what the simple rules would have given."""
        from rich.table import Table

        table = Table(title="mean latency, ms", title_justify="left")
        for name in ("device", "link", "cans", "always local", "always offload", "best of these"):
            table.add_column(name, justify="left" if name in ("device", "link") else "right")
        for device, (name, kind) in enumerate(story.devices):
            for phase, link in enumerate(("fast", "slow")):
                means = {how: story.mean(device, how, _settled(story, phase, how)) for how in
                         ("cans", "local", "offload")}  # fmt: skip
                known = {how: ms for how, ms in means.items() if ms is not None}
                best = min(known, key=lambda how: known[how], default="-")
                table.add_row(f"{name} ({kind})" if phase == 0 else "", link,
                              *(_ms(ms) for ms in means.values()), best)  # fmt: skip
        self._console.print(table)
        during = [each for device in range(len(story.devices))
                  for each in story.samples(device, "cans") if each.outage]  # fmt: skip
        answered = sum(len(story.samples(device, "cans")) for device in range(len(story.devices)))
        slowest = max((each.ms for each in during), default=0.0)
        self.say(
            f"{answered + story.unanswered} inferences, {story.unanswered} without an answer; "
            f"{len(during)} answered while the server was gone, the slowest in {slowest:.0f} ms"
        )

    def what_next(self) -> None:
        self.say(
            "try next:\n"
            "  cans demo --devices 8 --seconds 120     more devices, more time to learn\n"
            "  cans testbed list                       experiments with every policy side by side\n"
            "  cans inspect mobilenet_v2               where a model can be cut (or YOUR.onnx)\n"
            "  cans serve --model YOUR.onnx            then, elsewhere: cans device --server ..."
        )


def _settled(story: Story, phase: int, how: str) -> Any:
    """The second half of a phase, without the outage: after the fleet has learned."""
    start = story.change_at / 2 if phase == 0 else (story.change_at + story.kill_at) / 2

    def keep(each: Sample) -> bool:
        if how == "cans" and each.seconds < start:
            return False
        real = how != "offload" or each.by_server
        return each.phase == phase and real and not each.outage

    return keep


def _rows(story: Story) -> list[tuple[str, ...]]:
    found = []
    for device, (name, kind) in enumerate(story.devices):
        samples = story.samples(device, "cans")
        where = "-"
        if samples:
            last = samples[-1]
            where = f"{last.point}, {last.codec}" if last.by_server else "all local"
        since = sum(each.ms for each in samples) / len(samples) if samples else None
        comparisons = (story.comparison(device, how) for how in ("local", "offload"))
        found.append((name, kind, where, _ms(story.latest(device)), _ms(since),
                      *(_ms(each) for each in comparisons)))  # fmt: skip
    return found


def _table(story: Story) -> Any:
    from rich.table import Table

    state = "[red]server gone[/red]" if story.server_down else "server up"
    title = f"{story.now():3.0f} of {story.seconds:.0f} s, {state}: {story.news}"
    table = Table(title=title, title_justify="left", caption="all times in ms")
    for name in ("device", "type", "cut at, codec"):
        table.add_column(name, min_width=10)
    for name in ("now", "since start", "always local", "always offload"):
        table.add_column(name, justify="right")
    for cells in _rows(story):
        table.add_row(*cells)
    return table


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
