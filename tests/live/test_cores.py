"""The parts without sockets: breaker, route, admission, journal, state file, exits."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cans
from cans.errors import Busy, InputError, RemoteProtocolError
from cans.learning import DeviceIdentity
from cans.learning.device.part import PartRecord
from cans.live.device.local import Exits, confidence, parse_exit
from cans.live.device.options import DeviceOptions
from cans.live.device.servers.route import BreakerSettings, CircuitBreaker, Route
from cans.live.device.start.statefile import StateFile, StateWriter, free_slot
from cans.live.device.timing import LocalTimes
from cans.live.server.admission import Admission, Ticket
from cans.live.wire.state import DeviceState, RefusedUploads, read, written
from cans.models.run.runtime import Provider, RuntimeOptions
from tests.live.toy import toy
from tests.live.values import KEY, statistics

SETTINGS = BreakerSettings(failures=3, first_wait=1.0, longest_wait=8.0)


# --- breaker ---


def test_three_failures_in_a_row_open_it() -> None:
    breaker = CircuitBreaker(SETTINGS)
    for _ in range(2):
        breaker.failed(0.0)
    breaker.succeeded()
    for _ in range(2):
        breaker.failed(0.0)
    assert breaker.closed
    breaker.failed(0.0)
    assert not breaker.closed


def test_waits_double_up_to_a_limit() -> None:
    breaker = CircuitBreaker(SETTINGS)
    now, waits = 0.0, []
    for _ in range(6):
        breaker.failed(now, lost=True)
        waits.append(breaker.retry_at - now)
        now = breaker.retry_at
    assert waits == [1, 2, 4, 8, 8, 8]


def test_a_server_that_answers_probes_only_is_tried_ever_less() -> None:
    breaker = CircuitBreaker(SETTINGS)
    now, tries = 0.0, 0
    while now < 100.0:
        if breaker.closed:
            tries += 1
            breaker.failed(now)
        elif breaker.may_probe(now):
            breaker.probed()
        now += 0.1
    assert tries < 30


@given(st.lists(st.sampled_from(["failed", "lost", "ok", "probed", "wait"]), max_size=60))
def test_a_breaker_always_comes_back(steps: list[str]) -> None:
    breaker, now = CircuitBreaker(SETTINGS), 0.0
    for step in steps:
        if step == "wait":
            now += 0.7
        elif step == "ok":
            breaker.succeeded()
        elif step == "probed":
            breaker.probed()
        else:
            breaker.failed(now, lost=step == "lost")
        if not breaker.closed:
            assert breaker.retry_at <= now + SETTINGS.longest_wait
            assert breaker.may_probe(breaker.retry_at)


# --- route ---


def test_another_server_takes_over() -> None:
    route = Route(["a:1", "b:1"], SETTINGS)
    assert route.to_join(0.0) == 0
    route.joining(0)
    assert route.to_join(0.0) is None
    route.joined(0)
    assert (route.usable, route.next_try()) == (0, None)
    route.failed(0, 10.0, lost=True)
    assert route.usable is None
    assert route.to_join(10.0) == 1
    route.joining(1)
    route.join_failed(1, 10.0)
    assert route.to_join(10.5) is None
    assert route.next_try() == 11.0
    assert route.to_join(11.0) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["join", "refuse", "fail", "lose", "ok", "leave"]),
                  st.floats(0, 3)),
        max_size=60,
    )
)  # fmt: skip
def test_a_route_is_never_stuck(steps: list[tuple[str, float]]) -> None:
    route, now = Route(["a:1", "b:1", "c:1"], SETTINGS), 0.0
    for step, wait in steps:
        now += wait
        wanted = route.to_join(now)
        if wanted is not None:
            route.joining(wanted)
            if step == "refuse":
                route.join_failed(wanted, now)
            else:
                route.joined(wanted)
        usable = route.usable
        if usable is not None:
            if step in ("fail", "lose"):
                route.failed(usable, now, lost=step == "lose")
            elif step == "ok":
                route.succeeded(usable)
            elif step == "leave":
                route.leave(usable)
        if route.usable is None:
            due = route.next_try()
            assert due is not None
            assert due <= now + SETTINGS.longest_wait
            assert route.to_join(max(due, now)) is not None


# --- admission ---


def run(admission: Admission, compute_ms: float = 1.0) -> Ticket:
    """Run the job whose turn it is."""
    ticket = admission.next()
    assert ticket is not None
    admission.finished(ticket, compute_ms)
    return ticket


def test_a_full_queue_refuses() -> None:
    admission = Admission(workers=1, queue=2)
    for _ in range(3):
        admission.admit("a", None)
    with pytest.raises(Busy, match="waiting or running"):
        admission.admit("a", None)
    run(admission, 5.0)
    admission.admit("a", None)


def test_one_slow_run_does_not_keep_others_out_for_ever() -> None:
    """The only run of its kind was timed while the process was stopped; nobody times a refusal."""
    admission = Admission(workers=1, queue=2)
    admission.admit("a", None)
    run(admission, 12_000.0)
    for _ in range(3):
        with pytest.raises(Busy):
            admission.admit("a", 1500.0)
    admission.admit("a", 1500.0)
    run(admission, 12_000.0)  # it is that slow: the next is refused again
    with pytest.raises(Busy):
        admission.admit("a", 1500.0)


def test_a_deadline_that_cannot_be_met_refuses() -> None:
    admission = Admission(workers=1, queue=10)
    admission.admit("slow", 1.0)
    run(admission, 100.0)
    with pytest.raises(Busy, match="deadline"):
        admission.admit("slow", 50.0)
    admission.admit("slow", 150.0)
    with pytest.raises(Busy):
        admission.admit("slow", 150.0)
    admission.admit("other", 150.0)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1000)), max_size=80))
def test_admission_never_lets_too_many_in(steps: list[tuple[bool, float]]) -> None:
    admission = Admission(workers=2, queue=3)
    inside = 0
    for i, (arrive, ms) in enumerate(steps):
        if arrive:
            with suppress(Busy):
                _, displaced = admission.admit("a", ms, str(i % 3))
                inside += displaced is None
        elif inside:
            run(admission, ms)
            inside -= 1
        assert admission.inside == inside <= 5
        assert admission.wait_ms() >= 0


def test_devices_take_turns_whatever_they_send() -> None:
    admission = Admission(workers=1, queue=100)
    for device in ("greedy",) * 60 + ("a", "b"):
        admission.admit("job", None, device)
        run(admission) if device == "greedy" and not admission.expected_ms("job") else None
    turns = [run(admission).device for _ in range(10)]
    assert {"a", "b"} <= set(turns[:4])
    for device in ("a", "b"):
        admission.admit("job", None, device)
    assert {"a", "b"} <= {run(admission).device for _ in range(4)}


def test_turns_go_by_weight() -> None:
    admission = Admission(workers=1, queue=1000)
    admission.admit("job", None)
    run(admission, 10.0)
    for _ in range(60):
        admission.admit("job", None, "light", 1.0)
        admission.admit("job", None, "heavy", 3.0)
    turns = [run(admission, 10.0).device for _ in range(40)]
    assert 28 <= turns.count("heavy") <= 32


def test_a_full_queue_makes_room_for_who_has_less_in_it() -> None:
    admission = Admission(workers=1, queue=3)
    for _ in range(4):
        last, _ = admission.admit("job", None, "greedy")
    _, displaced = admission.admit("job", None, "modest")
    assert displaced is last
    assert admission.inside == 4
    admission.admit("job", None, "modest")
    with pytest.raises(Busy):  # two each: nobody has more than his part
        admission.admit("job", None, "modest")
    with pytest.raises(Busy):
        admission.admit("job", None, "greedy")


def test_who_waits_for_little_is_promised_little() -> None:
    admission = Admission(workers=1, queue=100)
    admission.admit("job", None)
    run(admission, 10.0)
    for _ in range(50):
        admission.admit("job", None, "greedy")
    assert admission.wait_ms("greedy") == pytest.approx(500.0)
    assert admission.wait_ms("modest") == pytest.approx(10.0)


# --- what a device remembers ---


def some_state(count: int = 3) -> DeviceState:
    value = statistics(count)
    record = PartRecord(KEY, 1, count, value, value, value if count % 2 else None, value)
    who = DeviceIdentity("a", "b", "rpi5", "lab")
    refused = (RefusedUploads(KEY, value, 2, "not believed"),) * (count % 3)
    return DeviceState(who, b"", (record,) * 2, True, 5, 4, (record,), refused)


def same(a: DeviceState, b: DeviceState) -> bool:
    return written(a) == written(b)


def test_a_state_comes_back_as_it_was() -> None:
    for count in range(4):
        assert same(read(written(some_state(count))), some_state(count))


@given(st.data())
def test_a_damaged_state_is_noticed(data: st.DataObject) -> None:
    whole = written(some_state())
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(RemoteProtocolError):
        read(whole[:cut])
    flipped = bytearray(whole)
    flipped[cut] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RemoteProtocolError):
        read(bytes(flipped))


def test_state_files(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    assert file.load() is None
    file.keep(some_state(1))
    file.keep(some_state(2))
    file.sync()
    with pytest.raises(InputError, match="another device"):
        StateFile(tmp_path)
    file.close()
    file = StateFile(tmp_path)
    kept = file.load()
    assert kept is not None
    assert same(kept, some_state(2))
    (tmp_path / "state").write_bytes(b"CANSv1\nrubbish")
    assert file.load() is None
    assert (tmp_path / "state.damaged").exists()
    file.close()


def kept(file: StateFile) -> bytes:
    state = file.load()
    assert state is not None
    return written(state)


def test_a_state_is_written_when_it_is_said_or_must_be_safe(tmp_path: Path) -> None:
    file, safe = StateFile(tmp_path), threading.Event()
    writer = StateWriter(file, safe.set)
    writer.keep(some_state(1), durable=False)
    assert writer.unwritten
    assert file.load() is None
    writer.write()
    assert not writer.unwritten
    assert kept(file) == written(some_state(1))
    writer.keep(some_state(2), durable=True)
    assert safe.wait(10)
    assert not writer.unwritten
    assert kept(file) == written(some_state(2))
    writer.keep(some_state(3), durable=False)
    writer.close()
    assert kept(file) == written(some_state(3))
    file.close()


def test_free_slots(tmp_path: Path) -> None:
    first, second = free_slot(tmp_path), free_slot(tmp_path)
    assert first.folder != second.folder
    first.close()
    third = free_slot(tmp_path)
    assert third.folder == first.folder
    second.close()
    third.close()
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(InputError, match="cannot keep state"):
        free_slot(blocked)
    assert os.listdir(tmp_path)


# --- small things ---


def test_local_times_are_careful() -> None:
    times = LocalTimes()
    assert times.rest(3) == 0.0
    times.ran_whole(1.0)
    assert times.rest(3) == 1.0
    times.ran_whole(0.5)
    assert 0.9 < times.rest(3) < 1.0
    times.ran_rest(3, 0.2)
    assert times.rest(3) == 0.2


def test_exits() -> None:
    assert parse_exit("a:b:0.9") == ("a:b", 0.9)
    for bad in ("a", "a:", ":0.5", "a:2", "a:x", "a:0"):
        with pytest.raises(InputError):
            parse_exit(bad)
    assert confidence(np.array([[0.2, 0.8], [0.6, 0.4]])) == pytest.approx(0.6)
    with pytest.raises(InputError, match="outputs are"):
        Exits(toy(), [("nowhere", 0.5)])
    with pytest.raises(InputError, match="twice"):
        Exits(toy(), [("y", 0.5), ("y", 0.6)])
    assert Exits(toy(), []).points == Exits(toy(), [("y", 0.5)]).points == ()


def test_a_device_learns_with_those_of_its_first_provider() -> None:
    assert DeviceOptions(("a:1",)).provider == "CPUExecutionProvider"
    runtime = RuntimeOptions(providers=(Provider("CUDAExecutionProvider"), Provider()))
    assert DeviceOptions(("a:1",), runtime=runtime).provider == "CUDAExecutionProvider"


@pytest.mark.parametrize(
    "wrong", [{"provider": "abacus"}, {"threads": -1}, {"optimisation": "some"}]
)
def test_a_device_refuses_a_runtime_that_is_not_there(wrong) -> None:
    with pytest.raises(InputError):
        cans.Device("127.0.0.1:1", toy(), **wrong)
