"""What waiting costs, and what a request costs others."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cans.learning import Choice, Context, DeviceLearner, Latencies, policy_named
from cans.learning.congestion import (
    DELAYED,
    HEEDED,
    MOST_RESTLESS,
    RESTLESS,
    SETTLED,
    Habit,
    Load,
    LoadMeter,
    Overrun,
    aged,
    drained,
    expected_wait,
    not_of_this_moment,
    toll,
    usual_wait,
    wait_at_arrival,
    worth_asking,
)
from cans.learning.device.crowd import NEW
from cans.learning.edge import EdgeAggregator
from cans.simulation.worlds.crowded import crowded

BUSY = Load(wait_ms=30.0, utilisation=0.8, arrivals=40.0, joined=25, inside=3, workers=1)
SERVICE = np.array([0.0, 5.0, 10.0, 40.0])


def test_a_toll_is_what_others_wait_longer() -> None:
    fee = toll(SERVICE, BUSY)
    assert fee[0] == 0.0
    assert (np.diff(fee) > 0).all()
    behind = 0.040 * (30.0 + 5.0) / 0.2  # requests before the queue is empty again
    assert fee[2] == pytest.approx(DELAYED * 10.0 * behind)


def test_who_is_ahead_already_comes_behind_only_by_coming_back() -> None:
    full = toll(SERVICE, BUSY._replace(inside=24, arrivals=1e6))
    assert full == pytest.approx(DELAYED * SERVICE * 12), "half of them come back"
    assert not toll(SERVICE, BUSY._replace(joined=1, inside=0)).any()
    crowd = toll(SERVICE, BUSY._replace(utilisation=1.2, wait_ms=1e6))
    assert crowd == pytest.approx(DELAYED * SERVICE * (25 - 1 - 1.5)), "never infinite"


def test_more_workers_cost_others_less_and_infinitely_many_nothing() -> None:
    two, one = toll(SERVICE, BUSY._replace(workers=2)), toll(SERVICE, BUSY)
    assert two == pytest.approx(one / 2)
    assert not toll(SERVICE, BUSY._replace(workers=inf)).any()


def test_a_question_is_asked_where_it_may_pay() -> None:
    assert worth_asking(BUSY, 20.0, 2.0, 30.0)
    assert not worth_asking(BUSY._replace(utilisation=0.2, inside=0), 20.0, 2.0, 30.0)
    assert worth_asking(BUSY._replace(utilisation=0.0), 20.0, 2.0, 30.0), (
        "all workers are taken now"
    )
    assert not worth_asking(BUSY, 20.0, 2.0, 0.0), "nothing to gain: it stays local anyway"
    assert not worth_asking(BUSY, 20.0, 2.0, 1e4), "no wait is so long that it would not go there"
    assert not worth_asking(BUSY, 0.1, 2.0, 30.0)
    assert not worth_asking(BUSY._replace(workers=inf), 20.0, 2.0, 30.0)


def test_newcomers_reckon_with_others_that_begin_at_the_same_moment() -> None:
    idle = Load(joined=8, workers=1)
    assert not worth_asking(idle, 30.0, 2.0, 30.0)
    assert worth_asking(idle, 30.0, 2.0, 30.0, newcomer=True)
    assert not worth_asking(idle, 3.0, 2.0, 100.0, newcomer=True), "no queue eats up that gain"
    assert not worth_asking(idle._replace(joined=1), 30.0, 2.0, 30.0, newcomer=True), "it is alone"
    learner = DeviceLearner(crowded("vgg16", 1, "rpi5").table, policy_named("cans"))
    choice = Choice(0, 0, "float32", 50.0, 0.0)
    for _ in range(NEW):
        assert learner.crowd.newcomer
        learner.crowd.observe_wait(choice, 0.0)
    assert not learner.crowd.newcomer


def test_no_question_where_waits_hardly_ever_exceed_what_the_server_gains() -> None:
    used = BUSY._replace(utilisation=0.6)
    assert worth_asking(used, 10.0, 0.3, 20.0)
    assert not worth_asking(used, 10.0, 2.0, 20.0), "waits above 20 ms are rare, and it takes 2"
    assert worth_asking(used, 10.0, 2.0, 2.0), "near a tie every wait matters"


def test_a_load_that_is_not_of_this_moment_counts_with_the_usual_wait() -> None:
    told = Load(wait_ms=0.0, utilisation=0.6, arrivals=60.0, joined=12, workers=1)
    usual = usual_wait(told)
    assert usual == pytest.approx(0.5 * 10.0 * 0.6 / 0.4), "M/D/1"
    assert not_of_this_moment(told).wait_ms == usual, "whatever it was a moment ago"
    assert not_of_this_moment(told._replace(wait_ms=20.0)).wait_ms == usual
    assert not_of_this_moment(told._replace(wait_ms=900.0)).wait_ms == 900.0, "that has not passed"
    assert usual_wait(told._replace(joined=1)) == 0.0, "nobody else"
    assert usual_wait(told._replace(utilisation=1.0, joined=3)) == pytest.approx(2 * 1e3 / 60)
    assert usual_wait(told._replace(workers=4)) < usual
    assert usual_wait(told._replace(workers=inf)) == usual_wait(Load()) == 0.0


def habit_of(row: int, restless: float = 0.0, stayed: int = 0) -> Habit:
    made = Habit()
    made.taken, made.restless, made.stayed = row, restless, stayed
    return made


def test_who_has_changed_its_choice_changes_it_again_only_for_more() -> None:
    scores, charge = np.array([100.0, 94.0]), np.array([0.0, 1.0])
    assert habit_of(0).choose(1, scores, charge, BUSY, 0.5) == 1, "nobody waits: every gain counts"
    assert habit_of(0, RESTLESS).choose(1, scores, charge, BUSY, 0.5) == 0
    assert habit_of(0, RESTLESS).choose(1, np.array([100.0, 80.0]), charge, BUSY, 0.5) == 1
    unused = BUSY._replace(utilisation=0.01)
    assert habit_of(0, RESTLESS).choose(1, scores, charge, unused, 0.5) == 1, "nobody is disturbed"


def test_who_alternates_asks_for_more_each_time_and_forgets_it_again() -> None:
    habit, asked = Habit(), []
    for row in (0, 1, 0, 1, 0, 1):
        habit.took(row)
        asked.append(habit.restless)
    assert asked[:3] == pytest.approx([0.0, RESTLESS, 2 * RESTLESS])
    assert asked[-1] == MOST_RESTLESS
    for _ in range(2_000):
        habit.took(1)
    assert habit.restless < 0.01


def test_a_settled_device_seldom_makes_way_for_a_burst() -> None:
    scores, charge = np.array([60.0, 40.0]), np.array([35.0, 0.0])
    settled = habit_of(0, stayed=SETTLED)
    assert settled.choose(1, scores, charge, BUSY, HEEDED) == 0
    assert settled.choose(1, scores, charge, BUSY, 0.5 * HEEDED) == 1, "one in ten does"
    assert habit_of(0, stayed=SETTLED - 1).choose(1, scores, charge, BUSY, 0.9) == 1, "not settled"
    assert settled.choose(1, np.array([90.0, 40.0]), charge + 30.0, BUSY, 0.9) == 1, "twice as long"
    assert settled.choose(1, scores, 0.1 * charge, BUSY, 0.9) == 1, "it is not the waiting"


def test_what_is_worked_off_others_bring_again() -> None:
    told = Load(wait_ms=0.0, utilisation=0.6, arrivals=60.0, joined=9)
    usual, later = usual_wait(told), np.array([0.0, 1e4])
    assert wait_at_arrival(told._replace(wait_ms=usual), later) == pytest.approx([usual, usual])
    assert wait_at_arrival(told._replace(wait_ms=90.0), later) == pytest.approx([90.0, usual])
    assert not wait_at_arrival(told, later).any(), "a free server was seen"


def test_the_meter_finds_utilisation_and_arrivals() -> None:
    meter = LoadMeter(2, horizon_s=1.0)
    for k in range(400):  # one request every 50 ms, 40 ms on one of two workers
        time = 0.05 * k
        meter.arrived(time)
        meter.running(time, 1)
        meter.running(time + 0.04, 0)
    load = meter.load(20.0, 0.0, 5, 0)
    assert load.utilisation == pytest.approx(0.4, abs=0.03)
    assert load.arrivals == pytest.approx(20.0, rel=0.05)
    later = meter.load(30.0, 0.0, 5, 0)
    assert later.utilisation < 0.001


def taught(devices: int = 1) -> DeviceLearner:
    """A Pi that knows its own speed, the link and an idle server."""
    world, cans = crowded("vgg16", 1, "rpi5"), policy_named("cans")
    learner, edge = DeviceLearner(world.table, cans), EdgeAggregator(cans)
    for upload in learner.join([]):
        learner.adopt(edge.merge(upload))
    rows = [0, 1, 10, 11, 30, 31, 36, 37, world.table.local]
    for time, row in enumerate(rows * 6):
        ms = [float(segment[row]) for segment in world.segments_ms(0)]
        for upload in learner.observe(row, Latencies(*ms), time):
            learner.adopt(edge.merge(upload, time))
    return learner


def test_a_wait_sends_a_device_home_and_a_toll_does_so_sooner() -> None:
    learner = taught()
    idle = learner.select(Context(load=Load(joined=25)))
    assert idle.row != learner.table.local
    assert (idle.wait_ms, idle.toll_ms) == (0.0, 0.0)
    long = learner.select(Context(load=Load(wait_ms=1e4, joined=1)))
    assert long.row == learner.table.local
    assert (long.wait_ms, long.toll_ms) == (0.0, 0.0)
    dear = BUSY._replace(wait_ms=60.0, utilisation=0.95, arrivals=100.0, joined=60)
    assert learner.select(Context(load=dear, toll=0.0)).row != learner.table.local
    honest = learner.select(Context(load=dear))
    assert honest.row == learner.table.local
    weighty = learner.select(Context(load=dear, toll=0.01))  # a device of weight 100
    assert weighty.row != learner.table.local
    assert weighty.toll_ms > 0.0
    assert weighty.predicted_ms == pytest.approx(
        float(learner.predictions()[0][weighty.row]) + weighty.wait_ms
    )


def test_real_work_is_sent_to_a_server_that_nobody_heard_of() -> None:
    learner = taught()
    heard = 53.0  # the last round of `taught`
    assert not learner.trials.wants_work(heard + 5)
    assert learner.trials.wants_work(heard + 11)
    assert learner.table.point_of[learner.trials.work_choice] == 0
    fast = 0.1 * learner.crowd.server_ms
    learner.observe(learner.trials.work_choice, Latencies(None, None, fast), heard)
    assert learner.trials.wants_work(heard + 2), "it may be well again: sooner"


def test_who_leaves_the_server_little_finds_out_whether_it_is_well_again() -> None:
    """After a change: a late cut says nothing of what the raw input takes."""
    learner = taught()
    late, raw = 37, learner.trials.work_choice
    assert learner.trials.is_light(late)
    assert learner.trials.is_light(learner.table.local)
    assert not learner.trials.is_light(raw)
    seen = 46.0  # the raw input was sent for the last time in `taught`
    assert not learner.trials.wants_work(seen + 11, late), "a server that never changed is believed"
    learner._state.epoch[0, learner._parts["server"].number] = 1
    assert not learner.trials.wants_work(seen + 5, late)
    assert learner.trials.wants_work(seen + 11, late)
    assert not learner.trials.wants_work(seen + 11, raw), "it knows"
    fast = 0.1 * learner.crowd.server_ms
    learner.observe(raw, Latencies(None, None, fast), seen + 11)
    learner.observe(late, Latencies(None, None, 1.0), seen + 11.5)
    assert learner.trials.wants_work(seen + 13, late), (
        "as expected with little to do: no contradiction"
    )


def test_real_work_is_sent_in_the_same_codec_whatever_the_server_is_thought_to_take() -> None:
    """A server that is well again is found so only by what it was found slow with."""
    learner = taught()
    raw = learner.trials.work_choice
    assert learner.table.codec_of[raw] == "uint8"
    learner._state.mean[0, learner._parts["server"].number, raw] += 1e3
    assert learner.trials.work_choice == raw


def test_policies_that_have_not_heard_of_load_ignore_it() -> None:
    world = crowded("vgg16", 1, "rpi5")
    learner = DeviceLearner(world.table, policy_named("linucb"))
    assert learner.select(Context(load=BUSY)) == learner.select(Context())
    assert not learner.trials.wants_work(1e6)


def test_nobody_else_no_question() -> None:
    assert not worth_asking(BUSY._replace(joined=1), 20.0, 2.0, 30.0), (
        "alone it collides with nobody"
    )


@given(
    running=st.lists(st.floats(0, 1e3), max_size=4),
    queued=st.lists(st.floats(0, 1e3), max_size=12),
    more=st.floats(0, 1e3),
    workers=st.integers(1, 6),
)
def test_laws_of_the_expected_wait(
    running: list[float], queued: list[float], more: float, workers: int
) -> None:
    running = running[:workers]
    wait = expected_wait(running, queued, workers)
    total = sum(running) + sum(queued)
    assert 0.0 <= wait <= total / workers + 1e-9, "no worker is idle while somebody waits"
    assert wait == 0.0 or len(running) + len(queued) >= workers
    assert expected_wait(running, [*queued, more], workers) >= wait
    assert expected_wait(running, queued, workers + 1) <= wait
    assert expected_wait(running, queued, inf) == 0.0
    if workers == 1:
        assert wait == pytest.approx(total)


def test_a_wait_drains_by_what_the_server_has_to_spare() -> None:
    left = drained(BUSY, np.array([0.0, 50.0, 1e4]))
    assert left == pytest.approx([30.0, 30.0 - 0.2 * 50.0, 0.0])
    full = drained(BUSY._replace(utilisation=1.0), np.array([100.0]))
    assert full == pytest.approx([30.0 - 5.0]), "it is never taken to be quite full"


@given(age=st.floats(0, 1e3), more=st.floats(0, 1e3))
def test_an_old_load_counts_less_and_never_more(age: float, more: float) -> None:
    now, later = aged(BUSY, age), aged(BUSY, age + more)
    assert aged(BUSY, 0.0) == BUSY
    assert aged(BUSY, -1.0) == BUSY, "a clock that runs backwards"
    for field in ("wait_ms", "utilisation", "arrivals", "inside", "recent"):
        assert 0 <= getattr(later, field) <= getattr(now, field) <= getattr(BUSY, field)
    assert (later.joined, later.workers) == (BUSY.joined, BUSY.workers)


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), max_size=30))
def test_an_overrun_lies_between_nothing_and_the_worst(waits: list[tuple[float, float]]) -> None:
    overrun = Overrun()
    for told, waited in waits:
        overrun.waited(told, waited)
        assert 0.0 <= overrun.milliseconds <= max(w - t for t, w in [*waits, (0.0, 0.0)]) + 1e-9
    for _ in range(300):
        overrun.stayed()
    assert overrun.milliseconds < 0.01, "it tries again one day"


def test_who_is_passed_again_and_again_stays_away_for_a_while() -> None:
    learner = taught()
    load = Load(wait_ms=1.0, joined=8, arrivals=0.1)
    choice = learner.select(Context(load=load))
    assert choice.row != learner.table.local
    for _ in range(20):
        choice = learner.select(Context(load=load))
        if choice.row == learner.table.local:
            break
        learner.crowd.observe_wait(choice, 1e4)
    assert choice.row == learner.table.local
    assert learner.select(Context(load=load._replace(joined=1, arrivals=0.0))).overrun_ms == 0.0
    for _ in range(400):
        choice = learner.select(Context(load=load))
        learner.crowd.observe_wait(choice, 0.0)
    assert choice.row != learner.table.local


def test_a_choice_is_left_for_a_better_one_at_once_where_nobody_waits() -> None:
    scores = np.array([50.0, 49.0, 30.0])
    assert habit_of(0).choose(1, scores, np.zeros(3), BUSY, 0.5) == 1
    waits = np.array([10.0, 10.0, 0.0])
    assert habit_of(0).choose(1, scores, waits, BUSY, 0.5) == 0
    far = habit_of(0).choose(2, scores, 10.0 * waits, BUSY, 0.5)
    assert far == 2, "clearly better, however long they wait"
