"""Draws docs/images/regret.svg: `python -m benchmarks.picture`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import cans
from cans.learning.policies import POLICIES

SHOWN = ("cans", "fedlinucb-dw", "fedlinucb-decouple", "warmstart-linucb", "linucb", "fedlinucb")
TARGET = Path(__file__).parent.parent / "docs" / "images" / "regret.svg"


def main() -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "cans"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.4), layout="constrained")
    for policy in SHOWN:
        runs = cans.simulate("vgg16", policy, seeds=20).runs
        curve = np.mean([run.regret_curve() for run in runs], axis=0)[::25] / 1e3
        axes.plot(np.arange(len(curve)) * 25, curve, label=POLICIES[policy].title)
    axes.set(xlabel="inferences by 25 devices", ylabel="cumulative regret (s)")
    axes.set_yscale("symlog", linthresh=1e-4)
    axes.set_ylim(0, 100)
    axes.legend(frameon=False, ncols=2, fontsize=8, loc="center right", bbox_to_anchor=(1, 0.52))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(TARGET, metadata={"Date": None})


if __name__ == "__main__":
    main()
