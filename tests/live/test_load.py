"""A live server tells its load; devices learn computing alone, and count with wait and toll."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from cans.errors import InputError, RemoteProtocolError
from cans.learning import Choice, Context, DeviceLearner, Latencies, PartitionTable
from cans.learning.congestion import Load, usual_wait
from cans.learning.constraints import Constraints
from cans.learning.device.crowd import Crowd
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.device.options import DeviceOptions
from cans.live.device.round import Job
from cans.live.device.servers.told import ToldLoad
from cans.live.device.timing import LocalTimes, Measured, Offline
from cans.live.server.admission import Admission
from cans.live.server.crowd.load import PRESENT_S, ServerLoad
from cans.live.server.crowd.reservations import LONGEST_S, MOST, Reservations
from cans.live.server.door.identity import Caller
from cans.live.wire.inference import InferReply
from cans.live.wire.load import QuoteReply, QuoteRequest
from cans.live.wire.messages import PoolNews, ProbeReply
from cans.live.wire.proto import edge
from tests.live.faults import wait_until
from tests.live.running import running, terms
from tests.live.toy import example, toy

BUSY = Load(
    wait_ms=30.25, utilisation=0.8, arrivals=40.5, joined=25, inside=3, workers=2, recent=0.6
)


# --- on the wire ---


def test_a_load_comes_back_equal_in_every_message() -> None:
    reply = InferReply({"y": np.zeros(2, np.float32)}, 1.0, 2.0, 3.0, load=BUSY)
    assert InferReply.from_bytes(reply.to_bytes()).load == BUSY
    for each in (ProbeReply(1.0, BUSY), PoolNews((), 1.0, BUSY), QuoteReply(BUSY, 1.0, True)):
        assert type(each).from_bytes(each.to_bytes()) == each
    assert InferReply.from_bytes(replace(reply, load=None).to_bytes()).load is None
    longer = len(ProbeReply(1.0, BUSY).to_bytes()) - len(ProbeReply(1.0).to_bytes())
    assert longer <= 24, "it travels with every answer"


@pytest.mark.parametrize(
    "changes", [{"workers": 0}, {"joined": 0}, {"utilisation": 1001}, {"wait": 2**32 - 1}]
)
def test_a_load_that_cannot_be_costs_nobody_an_answer(changes: dict[str, int]) -> None:
    told = {"wait": 1, "joined": 1, "workers": 1, **changes}
    data = edge.ProbeReply(time=1.0, load=edge.Load(**told)).SerializeToString()
    assert ProbeReply.from_bytes(data) == ProbeReply(1.0)


def test_questions_are_checked() -> None:
    asked = QuoteRequest("pi", "digest", 3, "uint8", 50.0, work=True)
    assert QuoteRequest.from_bytes(asked.to_bytes()) == asked
    for wrong in (replace(asked, device=""), replace(asked, point=1 << 20),
                  replace(asked, hold_ms=-1.0)):  # fmt: skip
        with pytest.raises(RemoteProtocolError):
            QuoteRequest.from_bytes(wrong.to_bytes())


# --- what a device counts with ---


def test_what_was_told_counts_less_the_older_it_is() -> None:
    now = [100.0]
    told = ToldLoad(lambda: now[0])
    assert told.now(0) is None
    told.tell(0, BUSY)
    usual = BUSY._replace(wait_ms=usual_wait(BUSY))
    assert told.now(0) == usual, "the wait of that moment has passed"
    assert told.now(1) is None, "of another server nothing is known"
    told.tell(0, None)
    assert told.now(0) == usual
    long = BUSY._replace(wait_ms=5_000.0)
    told.tell(0, long)
    assert told.now(0) == long, "so long a wait has not"
    now[0] += 60.0
    later = told.now(0)
    assert later is not None
    assert later.wait_ms < 1e-3
    assert (later.joined, later.workers) == (25, 2)


def test_what_a_device_pays() -> None:
    assert DeviceOptions(("a:1",)).toll == 1.0
    assert DeviceOptions(("a:1",), weight=4.0).toll == 0.25
    assert DeviceOptions(("a:1",), selfish=True).toll == 0.0
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="--weight"):
            DeviceOptions(("a:1",), weight=wrong)


# --- places ---


def test_a_place_is_counted_until_it_is_taken_withdrawn_or_lapsed() -> None:
    places = Reservations()
    for who, ms in (("a", 10.0), ("b", 20.0), ("c", 30.0)):
        places.reserve(who, "model", ms, 1.0, now=0.0)
    assert places.announced("model", "a", 0.5) == [20.0, 30.0], "one's own is not in the way"
    assert places.announced("other", "a", 0.5) == []
    places.taken("b")
    places.withdrawn("c")
    assert places.announced("model", "", 0.5) == [10.0]
    places.reserve("a", "model", 15.0, 1.0, now=0.5)
    assert places.announced("model", "", 0.5) == [15.0], "one at a time"
    assert places.announced("model", "", 9.0) == []


def test_who_lets_a_place_lapse_is_not_believed_before_it_sends_something() -> None:
    places = Reservations()
    for now in range(0, 100, 10):
        places.reserve("liar", "model", 50.0, 1e9, float(now))
        assert places.announced("model", "", now + LONGEST_S + 0.1) == []
        if now:
            assert places.announced("model", "", float(now)) == []
    places.taken("liar")
    places.reserve("liar", "model", 50.0, 1.0, 200.0)
    assert places.announced("model", "", 200.5) == [50.0]
    many = Reservations()
    for each in range(10 * MOST):
        many.reserve(f"d{each}", "model", 1.0, 1.0, 0.0)
    assert len(many.announced("model", "", 0.0)) == MOST


# --- the server ---


class FakePool:
    """Hears what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int, list[float]]] = []

    def load(self, model: str, device: str, joined: int, announced: list[float]) -> Load:
        self.asked.append((model, device, joined, list(announced)))
        return Load(wait_ms=sum(announced), joined=joined, utilisation=0.9)

    def expected_ms(self, model: str, point: int, codec: str) -> float:
        return 10.0 * (point + 1)


def test_questions_are_answered_one_after_the_other() -> None:
    now = [0.0]
    load = ServerLoad(FakePool(), True, lambda: now[0])  # type: ignore[arg-type]
    callers = {name: Caller(peer=f"ipv4:127.0.0.1:{i}") for i, name in enumerate("abc")}

    def ask(device: str, point: int = 0) -> float:
        told, _ = load.quote(QuoteRequest(device, "m", point, hold_ms=500.0), callers[device])
        assert told is not None
        return told.wait_ms

    assert [ask("a"), ask("b", 1), ask("c")] == [0.0, 10.0, 30.0]
    load.came("b", "m", callers["b"])  # it takes its place
    load.quote(QuoteRequest("a", "m", withdrawn=True), callers["a"])
    assert ask("b") == 10.0, "the one of c"
    now[0] += 5.0
    assert ask("a") == 0.0, "they have lapsed"


def test_one_connection_has_one_place_whatever_names_it_uses() -> None:
    pool = FakePool()
    load = ServerLoad(pool, True, lambda: 0.0)  # type: ignore[arg-type]
    liar = Caller(peer="ipv4:10.0.0.1:1")
    for name in map(str, range(50)):
        load.quote(QuoteRequest(name, "m", 9, hold_ms=1e9), liar)
    load.quote(QuoteRequest("honest", "m"), Caller(peer="ipv4:10.0.0.2:1"))
    assert pool.asked[-1][-1] == [100.0]


def test_who_belongs_to_the_fleet_is_who_was_heard_of() -> None:
    now, pool = [0.0], FakePool()
    load = ServerLoad(pool, True, lambda: now[0])  # type: ignore[arg-type]
    for each in "abc":
        load.heard(each)
    now[0] += PRESENT_S / 2
    load.heard("d")
    assert load.told("a", "m").joined == 4  # type: ignore[union-attr]
    now[0] += PRESENT_S / 2 + 1.0
    assert load.told("d", "m").joined == 1  # type: ignore[union-attr]
    silent = ServerLoad(pool, False)  # type: ignore[arg-type]
    assert silent.told("a", "m") is None, "other policies are told nothing"


def test_one_device_of_the_fleet_sends_work_once_in_a_while() -> None:
    now = [100.0]
    load = ServerLoad(FakePool(), True, lambda: now[0])  # type: ignore[arg-type]

    def granted(device: str, every_s: float) -> bool:
        asked = QuoteRequest(device, "m", hold_ms=1e3 * every_s, work=True)
        return load.quote(asked, Caller(peer=device))[1]

    assert [granted("a", 10.0), granted("b", 10.0), granted("c", 10.0)] == [True, False, False]
    now[0] += 2.0
    assert [granted("b", 10.0), granted("b", 1.0)] == [False, True], "it may be well again"
    assert not any(granted("b", 0.0) for _ in range(50))


def test_a_device_waits_behind_one_request_of_each_other() -> None:
    admission = Admission(1, 64)
    for _ in range(30):
        admission.admit("kind", None, "many")
    admission.admit("kind", None, "one")
    running, waiting = admission.ahead("asking")
    assert (running, [each.device for each in waiting]) == ([], ["many", "one"])
    assert admission.ahead("many")[1] == [waiting[1]]


# --- together ---


def table(layers: int = 4) -> PartitionTable:
    """The whole model is 4 times 20 ms on the server and 400 ms here."""
    steps = np.arange(layers + 1.0)
    return PartitionTable(
        "toy", [f"p{int(step)}" for step in steps], front=steps[:, None],
        link=np.where(steps < layers, 1.0, 0.0)[:, None], server=(layers - steps)[:, None],
        digest="crowd",
    )  # fmt: skip


def test_the_wait_is_told_and_not_learned(tmp_path: Path) -> None:
    """Four devices at once on one worker: what is learned of the server is its own time."""
    block_s, devices = 0.01, 4
    model = toy(block_seconds=block_s, table=table())
    with running(model, terms=terms("cans"), workers=1) as server:
        made = [
            Device(server.address, model, state=tmp_path / str(i), hooks=Hooks(force=0))
            for i in range(devices)
        ]
        queued = 0.0
        with ThreadPoolExecutor(devices) as pool:
            for _ in range(5):
                list(pool.map(lambda each: each.infer(example()), made))
                for each in made:
                    each.settle()
                queued = max(queued, *(each.last.queue_ms for each in made if each.last))
        assert queued > 2 * 4e3 * block_s, "the last one waited behind others"
        told = made[0]._contact.load.now(0)
        assert told is not None
        assert told.joined == devices
        assert told.utilisation > 0.0
        learner = made[0]._experience.learner
        assert learner is not None
        alone_ms = 4e3 * block_s
        computing = float(learner.part_predictions("server")[0][0])
        assert computing < alone_ms + queued / 2, "the wait is not in it"
        for each in made:
            each.close()


def test_a_busy_server_sends_a_device_home_and_says_why(tmp_path: Path) -> None:
    model = toy(block_seconds=0.005, table=table())
    with (
        running(model, terms=terms("cans"), workers=1) as server,
        Device(server.address, model, state=tmp_path / "a") as device,
        Device(server.address, model, state=tmp_path / "b", selfish=True) as selfish,
    ):
        for each in (device, selfish):
            for row in (0, 1, 2, 3, 4) * 3:
                each.hooks.force = row
                each.infer(example())
            each.hooks.force = None
            each.settle()
            each._requests.decisions.quotes.wanted = lambda *_: False  # type: ignore[method-assign]
        slow = Load(wait_ms=1e4, utilisation=0.9, arrivals=50.0, joined=2)
        for each in (device, selfish):
            each._contact.load.tell(0, slow)
        report = device.run(example()).report
        assert report.answered_by == "device"
        found = re.search(r"the server is busy: wait ([\d.]+) ms, toll ([\d.]+) ms", report.why)
        assert found is not None
        assert float(found[1]) > 1e3, "however old it is by now"
        assert float(found[2]) > 0.0
        assert selfish.run(example()).report.answered_by == "device", "the wait counts for all"
        assert "toll 0.0 ms" in selfish.last.why  # type: ignore[union-attr]


def test_other_policies_hear_nothing_and_learn_as_before(tmp_path: Path) -> None:
    model = toy(block_seconds=0.002)
    with (
        running(model, terms=terms("fedlinucb-dw"), workers=1) as server,
        Device(server.address, model, state=tmp_path) as device,
    ):
        for _ in range(5):
            device.infer(example())
        assert device._contact.load.now(0) is None
        assert device._requests.decisions.quotes.asked == 0


def test_a_single_device_pays_nothing(tmp_path: Path) -> None:
    """However busy it keeps the server by itself: no question, no toll, no wait."""
    model = toy(block_seconds=0.003, table=table())
    with (
        running(model, terms=terms("cans"), workers=1) as server,
        Device(server.address, model, state=tmp_path, hooks=Hooks(force=0)) as device,
    ):
        for _ in range(20):
            device.infer(example())
        device.settle()
        told = device._contact.load._last
        assert told is not None
        assert (told.load.joined, told.load.wait_ms, told.load.inside) == (1, 0.0, 0)
        assert told.load.arrivals > 0.0
        device.hooks.force = None
        learner = device._experience.learner
        assert learner is not None
        for _ in range(10):
            device._contact.load.tell(0, told.load._replace(utilisation=0.9, recent=0.9))
            assert learner.crowd.charge(device._contact.load.now(0)) is None
            device.infer(example())
        assert device._requests.decisions.quotes.asked == 0


class Recorded:
    """Latencies of a world that this machine has nothing to do with."""

    def latencies(self, choice: Choice, measured: Measured) -> Latencies:
        return world_of(choice.row)

    def offline(self, measured: Offline) -> Offline:
        return [(row, world_of(row).front or 0.0) for row, _ in measured]


def world_of(row: int) -> Latencies:
    return Latencies(50.0 * row, 10.0 * (row < 4), 10.0 * (4 - row))


def test_live_choices_under_load_are_the_learner_s(tmp_path: Path) -> None:
    """The same loads and latencies, live and in a loop around the learner alone: same picks."""
    model = toy(table=table())
    waits = [0.0, 0.0, 40.0, 120.0, 400.0, 0.0] * 8
    loads = [Load(wait, min(wait / 200, 0.9), wait / 10, 9, 2) for wait in waits]
    agreed = terms("cans")
    with running(model, terms=agreed) as server:
        hooks = Hooks(stopwatch=Recorded())
        with Device(server.address, model, state=tmp_path, hooks=hooks, weight=2.0) as device:
            device.settle()
            who = device._experience.learning_identity
            learner = DeviceLearner(model.table, agreed.policy, who, agreed.hyperparameters)
            live, alone = [], []
            for load in loads:
                hooks.load = load
                device.refresh()
                learner.restore(device._experience.learner.records())  # type: ignore[union-attr]
                alone.append(learner.select(Context(load=load, toll=0.5)).row)
                device.infer(example())
                device.settle()
                live.append(device.last.point)  # type: ignore[union-attr]
        assert live == alone
        assert len(set(live)) > 1, "the load makes a difference"


def test_who_watches_and_stays_local_hears_of_a_server_in_use(tmp_path: Path) -> None:
    model = toy(block_seconds=0.01, table=table())
    stop = threading.Event()
    with (
        running(model, terms=terms("cans", fresh_pools=True), workers=1) as server,
        Device(server.address, model, state=tmp_path / "busy", hooks=Hooks(force=0)) as busy,
        Device(server.address, model, state=tmp_path / "quiet") as quiet,
    ):
        wait_until(lambda: quiet._contact.watching)
        quiet.settle()
        quiet._contact.load = told = ToldLoad()

        def work() -> None:
            while not stop.is_set():
                busy.infer(example())

        worker = threading.Thread(target=work)
        worker.start()
        try:
            wait_until(lambda: (heard := told.now(0)) is not None and heard.recent > 0.1, 30.0)
        finally:
            stop.set()
            worker.join()


# --- questions ---


class Never:
    """A question that a hung server does not answer."""

    def result(self, seconds: float | None = None) -> QuoteReply:
        raise TimeoutError


class Answer:
    def __init__(self, load: Load) -> None:
        self._load = load

    def result(self, seconds: float | None = None) -> QuoteReply:
        return QuoteReply(self._load, 1.0)


IN_USE = Load(wait_ms=1.0, utilisation=0.9, arrivals=5.0, joined=2, inside=1, recent=0.9)


def taught(device: Device) -> None:
    """It has tried everything, and stays out of the way of whoever else asks."""
    for row in (0, 1, 2, 3, 4) * 3:
        device.hooks.force = row
        device.infer(example())
    device.hooks.force = None
    device.settle()


def right(device: Device) -> None:
    """Its answer is that of the whole model."""
    np.testing.assert_allclose(device.infer(example())["y"], example()["t0"] + 4, rtol=1e-6)


def test_a_server_in_use_is_asked_and_keeps_a_place(tmp_path: Path) -> None:
    model = toy(block_seconds=0.005, table=table())
    with (
        running(model, terms=terms("cans"), workers=1) as server,
        Device(server.address, model, state=tmp_path / "a") as device,
    ):
        taught(device)
        decisions = device._requests.decisions
        quotes = decisions.quotes
        quotes.wanted = lambda *_: True  # type: ignore[method-assign]
        device._contact.round_trip_ms = 1e4  # it is patient, however busy this machine is
        decisions._times = LocalTimes()
        right(device)
        assert quotes.asked == 1
        assert not server.server.load._reservations._places, "taken, or withdrawn"
        assert "asked first" in device.last.why  # type: ignore[union-attr]
        learner = device._experience.learner
        assert learner is not None
        choice = learner.select()
        question = quotes.ask(0, learner, choice)
        assert quotes.answer(question, 60.0) is not None
        (place,) = server.server.load._reservations._places.values()
        assert place.milliseconds > 0.0, "what the server has measured"
        quotes.withdraw(question)
        wait_until(lambda: not server.server.load._reservations._places)


def test_a_front_end_that_has_begun_goes_on_from_there(tmp_path: Path) -> None:
    """Whatever was likely and whatever the answer is: the outputs are those of the whole model, and
    no block of it runs twice."""
    model, mine = (toy(block_seconds=0.002, table=table()) for _ in range(2))
    with (
        running(model, terms=terms("cans"), workers=1) as server,
        Device(server.address, mine, state=tmp_path, hooks=Hooks(hedge=False)) as device,
    ):
        taught(device)
        decisions, link = device._requests.decisions, device._contact.links[0]
        choose, points = decisions._chooser.choose, []  # type: ignore[var-annotated]
        decisions.quotes.wanted = lambda *_: True  # type: ignore[method-assign]
        blocks: list[str] = []
        mine.executor.on_block = lambda name, *_: blocks.append(name)
        for likely, wait in product(range(5), (0.0, 1e5)):

            def first_likely(*words: object, likely: int = likely) -> object:
                choice, why = choose(*words)  # type: ignore[arg-type]
                assert choice is not None
                if not points:
                    choice = choice._replace(row=likely, point=likely)
                points.append(choice.point)
                return choice, why

            points.clear()
            decisions._chooser.choose = first_likely  # type: ignore
            answer = Answer(IN_USE._replace(wait_ms=wait))
            link.quote = lambda _, answer=answer: answer  # type: ignore
            blocks.clear()
            right(device)
            device.settle()
            assert len(points) == 2
            assert points[1] >= (likely if likely < 4 else 0)
            assert points[1] == 4 or wait == 0.0
            assert blocks == [f"b{each}" for each in range(points[1])]


def test_a_question_that_is_not_answered_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hung server is not asked again before it has said something."""
    monkeypatch.setattr(Crowd, "gain_ms", 10.0)
    model = toy(block_seconds=0.005, table=table())
    with (
        running(model, terms=terms("cans"), workers=1) as server,
        Device(server.address, model, state=tmp_path) as device,
    ):
        taught(device)
        quotes = device._requests.decisions.quotes
        device._contact.load.tell(0, IN_USE)
        link = device._contact.links[0]
        real, link.quote = link.quote, lambda _: Never()  # type: ignore
        learner = device._experience.learner
        assert learner is not None
        device._contact.round_trip_ms = 0.0
        choice = learner.select()._replace(row=0, point=0)
        assert quotes.wanted(0, IN_USE, learner, choice)
        assert quotes.answer(quotes.ask(0, learner, choice), 60.0) is None
        assert not quotes.wanted(0, IN_USE, learner, choice)
        link.quote = real  # type: ignore[method-assign]
        device._contact.load.tell(0, IN_USE)
        assert quotes.wanted(0, IN_USE, learner, choice)
        right(device)


def test_nobody_waits_for_an_answer_longer_than_a_share_of_a_local_run(tmp_path: Path) -> None:
    seen: list[float | None] = []

    class Slow(Never):
        def result(self, seconds: float | None = None) -> QuoteReply:
            seen.append(seconds)
            raise TimeoutError

    model = toy(table=table())
    with (
        running(model, terms=terms("cans")) as server,
        Device(server.address, model, state=tmp_path) as device,
    ):
        quotes, learner = device._requests.decisions.quotes, device._experience.learner
        assert learner is not None
        device._contact.links[0].quote = lambda _: Slow()  # type: ignore
        device._contact.round_trip_ms = 1000.0
        quotes.answer(quotes.ask(0, learner, learner.select()), 0.02)
    assert seen[0] is not None
    assert seen[0] <= 0.25 * 0.02


# --- real work ---


def test_one_device_that_stays_local_sends_the_server_real_work(tmp_path: Path) -> None:
    model = toy(block_seconds=0.002, table=table())
    with (
        running(model, terms=terms("cans"), workers=1) as server,
        Device(server.address, model, state=tmp_path / "a") as one,
        Device(server.address, model, state=tmp_path / "b") as two,
    ):
        for each in (one, two):
            each.hooks.hedge = False
            taught(each)
            each._requests.decisions.quotes.wanted = lambda *_: False  # type: ignore[method-assign]
        before = one._experience.state

        def stay(device: Device) -> None:
            learner = device._experience.learner
            assert learner is not None
            learner.trials.wants_work = lambda *_: True  # type: ignore[method-assign]
            learner.trials._hopeful = False  # whatever a busy machine made of the times before
            device._contact.load.tell(0, Load(wait_ms=1e6, joined=2))
            assert device.run(example()).report.answered_by == "device"
            device.settle()

        work = one._agent._work  # type: ignore[union-attr]
        stay(one)
        wait_until(lambda: work.sent == 1 and work._working is None)
        wait_until(lambda: one._experience.state.observations == before.observations + 2)
        after = one._experience.state
        assert after.inferences == before.inferences + 1, "it was no inference of the user's"
        other = two._agent._work  # type: ignore[union-attr]
        for _ in range(3):
            other._next = 0.0
            stay(two)
            wait_until(lambda: other._asking is None)
        assert other.sent == 0, "the fleet has sent some just now"


def test_one_device_that_leaves_the_server_little_sends_it_real_work(tmp_path: Path) -> None:
    """Only of a server that has changed: a single device on a steady one sends nothing extra."""
    model = toy(block_seconds=0.002, table=table())
    with (
        running(model, terms=terms("cans"), workers=1) as server,
        Device(server.address, model, state=tmp_path, hooks=Hooks(hedge=False)) as device,
    ):
        taught(device)
        learner, agent = device._experience.learner, device._agent
        assert learner is not None
        assert agent is not None
        learner.trials._worked_at, learner.trials._hopeful = -100.0, False

        late, raw = 3, 0
        assert not agent._work.wanted(0, late)
        learner._state.epoch[0, learner._parts["server"].number] = 1
        assert not agent._work.wanted(0, raw), "its own requests say it"
        assert agent._work.wanted(0, late)
        agent._work.offer(Job(example(), time.monotonic() + 5.0), 0, late)
        wait_until(lambda: agent._work.sent == 1 and agent._work._working is None)
        assert not agent._work.wanted(0, late), "now it knows"


def test_the_raw_input_of_a_private_device_is_not_sent_for_the_server_s_sake(
    tmp_path: Path,
) -> None:
    model = toy(table=table())
    private = Constraints(min_local_depth=2)
    with (
        running(model, terms=terms("cans")) as server,
        Device(server.address, model, state=tmp_path, constraints=private) as device,
    ):
        learner, agent = device._experience.learner, device._agent
        assert learner is not None
        assert agent is not None
        learner.trials.wants_work = lambda *_: True  # type: ignore[method-assign]
        device._contact.load.tell(0, IN_USE)
        assert not agent._work.wanted(0)
        agent._work._options = DeviceOptions(("a:1",))
        assert agent._work.wanted(0)
