"""`cans device --obey`: a testbed decides when to infer, how fast the link is, and what to force.

One JSON object per line in, one per line out; the device ends when standard input does, so that it
never outlives whoever gives the orders.

{"do": "infer"}                      -> the report of one inference
{"do": "set", "force": 3, "mbps": 10}   -> {"ok": true}; null: the policy's choice, no pacing
{"do": "calibrate", "runs": 5, "point": 3}   -> {"wall_ms": ..., "own_ms": ..., "slowdown": ...} of
                                        a front-end; without a point: of the whole model
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from typing import IO, Any

from cans.errors import CansError, InputError
from cans.live.device.hooked import HookedDevice
from cans.live.split import Arrays


class Obedience:
    """A device that does as it is told."""

    def __init__(self, device: HookedDevice, next_input: Callable[[], Arrays]) -> None:
        self._device = device
        self._next_input = next_input
        self._orders: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "infer": self._infer,
            "set": self._set,
            "calibrate": self._calibrate,
        }

    def run(self, orders: IO[str], answers: IO[str]) -> None:
        """Until there are no more orders."""
        self._say(answers, {"ready": True, "joined": self._device.joined})
        for line in orders:
            try:
                order = json.loads(line)
                answer = self._orders[order["do"]](order)
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(f"not an order: {line.strip()[:80]!r} ({error})") from None
            except CansError as error:
                answer = {"error": str(error)}
            self._say(answers, answer)

    @staticmethod
    def _say(answers: IO[str], answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    def _infer(self, _: dict[str, Any]) -> dict[str, Any]:
        inputs = self._next_input()
        start = time.perf_counter()
        result = self._device.run(inputs)
        waited_ms = (time.perf_counter() - start) * 1e3
        return {"time": time.time(), "waited_ms": waited_ms, **result.report.to_dict(choices=False)}

    def _set(self, order: dict[str, Any]) -> dict[str, Any]:
        self._device.hooks.force = order.get("force")
        self._device.hooks.pace_mbps = order.get("mbps")
        return {"ok": True}

    def _calibrate(self, order: dict[str, Any]) -> dict[str, Any]:
        """Time of a front-end as this device runs it, and the processor's own share of it."""
        model = self._device.model
        inputs = self._next_input()
        point = int(order.get("point", model.last))
        runs: list[Any] = [model.executor.run_front(point, inputs) for _ in
                           range(int(order.get("runs", 5)))]  # fmt: skip
        walls = [sum(each.seconds for each in run.blocks) * 1e3 for run in runs]
        owns = [sum(each.thread_seconds for each in run.blocks) * 1e3 for run in runs]
        return {
            "wall_ms": median(walls),
            "own_ms": median(owns),
            "slowdown": median(wall / own for wall, own in zip(walls, owns, strict=True)),
        }
