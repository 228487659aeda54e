"""Back-ends that take longer than this machine needs: a testbed's server of a few cores can be the
bottleneck of a fleet that runs on the same cores."""

from __future__ import annotations

import time

from cans.errors import InputError
from cans.live.split import SplitModel


def stretch(model: SplitModel, factor: float) -> None:
    """Every block of a model takes so many times its own processor time from now on."""
    if not factor >= 1.0:
        raise InputError("--slowdown must be 1 or more")

    def wait(_: str, thread_seconds: float, wall_seconds: float) -> None:
        time.sleep(max(factor * thread_seconds - wall_seconds, 0.0))

    model.executor.on_block = wait
