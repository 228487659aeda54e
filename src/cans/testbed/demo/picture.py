"""The demo as a picture: latency of every device over time, and what happened when."""

from __future__ import annotations

from pathlib import Path

from cans.testbed.demo.story import Story


def draw(story: Story, path: Path) -> bool:
    """False when matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    count = len(story.devices)
    figure, all_axes = pyplot.subplots(
        count, 1, sharex=True, squeeze=False, figsize=(9, 1.2 + 1.7 * count)
    )
    for device, (name, kind) in enumerate(story.devices):
        axes = all_axes[device][0]
        for how, style in (("offload", "C1--"), ("local", "C2--"), ("cans", "C0-")):
            found = [each for each in story.samples(device, how)
                     if how != "offload" or each.by_server]  # fmt: skip
            axes.plot([each.seconds for each in found], [each.ms for each in found], style,
                      linewidth=1, label=how)  # fmt: skip
        for seconds, _ in story.events:
            axes.axvline(seconds, color="grey", linewidth=0.8)
        axes.set(ylabel="ms", ylim=(0, None))
        axes.set_title(f"{name} ({kind})", fontsize=9, loc="left")
    all_axes[0][0].legend(fontsize=7, ncols=3, loc="upper right")
    events = "; ".join(f"{seconds:.0f} s: {text}" for seconds, text in story.events)
    all_axes[-1][0].set_xlabel(f"seconds\n{events}", fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True
