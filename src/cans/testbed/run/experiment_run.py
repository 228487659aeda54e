"""An experiment from start to end: processes up, calibration, sweep, rounds, everything down."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cans.errors import RunError
from cans.testbed.report.records import FIXED, SWEEP, Row, row_of
from cans.testbed.run.calibration import Calibration, calibrate
from cans.testbed.run.contention import FreeRunning, jointly_best
from cans.testbed.run.experiment import Experiment, PolicyChoice
from cans.testbed.run.fleet import ProcessFleet
from cans.testbed.run.layout import ChoiceInfo, DeviceSeat, choices, seats
from cans.testbed.run.network import Network, goodput, is_left_over, open_network
from cans.testbed.run.processes import stop_all
from cans.testbed.run.sweep import Swept, sweep
from cans.testbed.run.warming import warm_up

TEMPORARY = "cans-testbed-"
Say = Callable[[str], None]


class Outcome:
    """What one model's rounds gave."""

    def __init__(self, model: str, choices: Sequence[ChoiceInfo]) -> None:
        self.model = model
        self.choices = choices
        self.calibration: list[Calibration] = []
        self.swept: dict[int, Swept] = {}  # by the first round of the phase
        self.rows: list[Row] = []
        self.network = ""


class Testbed:
    """The processes of one model under all policies; leaves nothing behind."""

    def __init__(
        self,
        experiment: Experiment,
        model: str,
        say: Say,
        before: Outcome | None = None,
        dashboard: str = "",
        only_forced: bool = False,
    ) -> None:
        self._dashboard = dashboard  # HOST:PORT of the last policy's live page; empty: none
        self._only_forced = only_forced  # no policies: just the fleet that takes what it is told
        self.experiment = experiment
        self.seats = seats(experiment)
        self.outcome = before or Outcome(model, choices(experiment, model))
        self._model = model
        self._say = say
        self._stack = ExitStack()
        self.network: Network
        self.reference: ProcessFleet
        self.fleets: list[ProcessFleet] = []

    def __enter__(self) -> Testbed:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        experiment = self.experiment
        remove_stale_folders()
        kept = tempfile.TemporaryDirectory(
            prefix=f"{TEMPORARY}{os.getpid()}-", ignore_cleanup_errors=True
        )
        folder = Path(self._stack.enter_context(kept))
        loss = experiment.loss()
        self.network = open_network(
            experiment.network,
            len(self.seats),
            {seat.index: loss[seat.group.network] for seat in self.seats},
        )
        self._stack.callback(self.network.close)
        self.outcome.network = self.network.name
        self.set_rates(0)
        self._stack.callback(stop_all)
        learning = () if self._only_forced else experiment.policies
        policies = (PolicyChoice("local", FIXED), *learning)
        self._say(f"starting {len(policies)} x {len(self.seats)} devices ({self.network.name})")
        for number, policy in enumerate(policies):
            where = folder / str(number)
            page = self._dashboard if policy is policies[-1] else ""
            made = ProcessFleet(
                experiment, self._model, policy, self.seats, self.network, where, page
            )
            self.fleets.append(made)
        for fleet in self.fleets:
            fleet.server.wait_until_ready()
        for fleet in self.fleets:
            fleet.start_devices()
        for fleet in self.fleets:
            fleet.wait_until_ready()
        if not experiment.prepare:
            self._say("running every half once or twice")
            warm_up(self.fleets, self.network, self.outcome.choices[-1].point + 1, folder)
        self.reference = self.fleets[0]

    # --- links and servers ---

    def set_rates(self, round_: int) -> None:
        rates = self.experiment.rates(round_)
        for seat in self.seats:
            self.network.set_rate(seat.index, rates[seat.group.network])

    def _change_links(self, round_: int) -> None:
        self.set_rates(round_)
        for fleet in self.fleets:
            fleet.follow_rates()

    def _mbps(self, seat: DeviceSeat, round_: int) -> float:
        return self.experiment.rates(round_)[seat.group.network]

    def _server_up_or_down(self, round_: int) -> None:
        down = self.experiment.server_is_down(round_)
        if down == (round_ > 0 and self.experiment.server_is_down(round_ - 1)):
            return
        self._say(f"round {round_}: the server {'is killed' if down else 'returns'}")
        for fleet in self.fleets:
            if down:
                fleet.server.kill()
            else:
                fleet.server.start_again()
        if not down:
            for fleet in self.fleets:
                fleet.server.wait_until_ready()

    # --- before the rounds ---

    def prepare(self) -> None:
        """Measure what the testbed is, and what is best on it, unless that is known."""
        if self.outcome.calibration:
            return
        loss = self.experiment.loss()
        self.outcome.calibration = calibrate(
            self.reference,
            self.outcome.choices,
            lambda seat: goodput(self._mbps(seat, 0), loss[seat.group.network]),
        )
        if self.experiment.sweep_runs == 0:
            return
        for phase in reversed(self.experiment.phases()):  # the last first: ends with round 0's
            self._say(f"trying every choice, links as from round {phase}")
            self._change_links(phase)

            def record(answer: dict[str, Any], seat: DeviceSeat, phase: int = phase) -> None:
                self.record_sweep(answer, seat, phase)

            swept = sweep(self.reference, self.outcome.choices, self.experiment.sweep_runs, record)
            if self.experiment.mode == "free-running":
                rows = [row for row in self.outcome.rows if row["round"] == phase]
                joint = jointly_best(self.experiment, self.seats, self.outcome.choices, rows)
                swept = replace(swept, best=joint)
            self.outcome.swept[phase] = swept
        self._change_links(0)

    # --- the rounds ---

    def run_rounds(self) -> None:
        """Policies take turns in an order that changes with every round and device."""
        if self.experiment.mode == "free-running":
            self._run_freely()
            return
        phases = self.experiment.phases()
        for round_ in range(self.experiment.rounds):
            self._server_up_or_down(round_)
            if round_ in phases:
                if round_ > 0:
                    self._say(f"round {round_}: the links change")
                    self._change_links(round_)
                self._force_best(round_)
            if round_ % 25 == 0:
                self._say(f"round {round_} of {self.experiment.rounds}")
            if self.experiment.mode == "concurrent":
                self._concurrent_round(round_)
            else:
                self._round_one_at_a_time(round_)

    def _run_freely(self) -> None:
        """Policies take turns of several inferences: a server has to fill up before it is full."""
        rounds, turn = self.experiment.rounds, self.experiment.turn
        playing = {fleet.label: FreeRunning(self.experiment, fleet) for fleet in self.fleets}
        self._force_best(0)
        for first in range(0, rounds, turn):
            self._say(f"round {first} of {rounds}")
            for fleet in self._in_turn(first):
                label = fleet.label

                def record(
                    answer: dict[str, Any], seat: DeviceSeat, n: int, label: str = label
                ) -> None:
                    self._record(answer, seat, label, n)

                playing[label].play(min(turn, rounds - first), record)

    def _in_turn(self, round_: int, device: int = 0) -> list[ProcessFleet]:
        """All fleets in random order, so that no policy always follows the same other one."""
        fleets = self.fleets if self.outcome.swept else self.fleets[1:]
        random = np.random.default_rng((self.experiment.seed, round_, device))
        return [fleets[each] for each in random.permutation(len(fleets))]

    def _rest(self) -> None:
        """What an inference sets off (uploads, news of pools) must not disturb the next one."""
        time.sleep(self.experiment.rest_ms / 1e3)

    def _round_one_at_a_time(self, round_: int) -> None:
        for seat in self.seats:
            for fleet in self._in_turn(round_, seat.index):
                self._record(fleet.infer(seat.index), seat, fleet.label, round_)
                self._rest()

    def _concurrent_round(self, round_: int) -> None:
        with ThreadPoolExecutor(len(self.seats)) as pool:
            for fleet in self._in_turn(round_):
                answers = pool.map(fleet.infer, range(len(self.seats)))
                for seat, answer in zip(self.seats, answers, strict=True):
                    self._record(answer, seat, fleet.label, round_)

    def _force_best(self, phase: int) -> None:
        swept = self.outcome.swept.get(phase)
        if swept is not None:
            for device, row in swept.best.items():
                self.reference.force(device, row)

    def record_sweep(self, answer: dict[str, Any], seat: DeviceSeat, phase: int) -> None:
        """Write a forced run down, and rest."""
        self._record(answer, seat, SWEEP, phase)
        self._rest()

    def _record(self, answer: dict[str, Any], seat: DeviceSeat, policy: str, round_: int) -> None:
        mbps = self._mbps(seat, round_)
        row = row_of(answer, seat, model=self._model, policy=policy, round_=round_, mbps=mbps)
        self.outcome.rows.append(row)


def remove_stale_folders() -> None:
    """Those of a testbed that was killed before it could clean up."""
    for folder in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
        if is_left_over(folder.name.removeprefix(TEMPORARY)):
            shutil.rmtree(folder, ignore_errors=True)


def run_model(experiment: Experiment, model: str, say: Say) -> Outcome:
    """All rounds of one model under all policies."""
    outcome: Outcome | None = None
    for start in range(0, len(experiment.policies), experiment.policies_at_once):
        some = experiment.policies[start : start + experiment.policies_at_once]
        with Testbed(replace(experiment, policies=some), model, say, outcome) as testbed:
            testbed.prepare()
            testbed.run_rounds()
        outcome = testbed.outcome
    if outcome is None or not outcome.rows:
        raise RunError("the experiment measured nothing")
    return outcome
