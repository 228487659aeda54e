"""Every fault, done for real and counted. `python -m tests.live.faults` runs them at full length
and prints the table of docs/reliability.md."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cans.errors import CansError
from cans.learning import Latencies, Upload
from cans.live.device.hooked import HookedDevice as Device
from cans.live.device.hooks import Hooks
from cans.live.device.servers.route import BreakerSettings
from cans.live.store import Store, open_store
from cans.live.wire.messages import SyncRequest
from cans.live.wire.state import read
from tests.live.lag import Lag
from tests.live.ledger import Ledger, check_conservation, expected, stored, unsent
from tests.live.postgres import Postgres
from tests.live.process import agent, eager, free_port, server
from tests.live.proxy import Proxy
from tests.live.running import running
from tests.live.toy import example, toy

QUICK = BreakerSettings(first_wait=0.05, longest_wait=0.5)
DEADLINE_MS = 2_000.0
GRACE_MS = 60.0  # waking a thread up; on a busy machine as much more as `Lag` has seen


@dataclass
class Tally:
    """What happened to the requests of one run."""

    requests: int = 0
    by_server: int = 0
    local: int = 0  # answered by the device, chosen or fallen back
    refused: int = 0  # failed with a clear error
    wrong: int = 0
    late: int = 0  # answer or error after the deadline
    worst_ms: float = 0.0
    notes: dict[str, float] = field(default_factory=dict)

    def check(self) -> None:
        assert self.requests > 0
        assert (self.wrong, self.late) == (0, 0), self


class Load:
    """Devices that infer as fast as they can until told to stop, and check every answer."""

    def __init__(
        self, address: str, folder: Path, devices: int = 2, deadline_ms: float = DEADLINE_MS,
        block_seconds: float = 0.0, pause: float = 0.002,
    ) -> None:  # fmt: skip
        self.tally = Tally()
        self.books = [Ledger() for _ in range(devices)]
        self._lock = threading.Lock()
        self._going = True
        self._deadline = deadline_ms
        self._pause = pause
        self._lag = Lag()
        self.devices = [
            Device(
                address, toy(block_seconds=block_seconds), "rpi5", state=folder / f"device-{i}",
                seed=i, hooks=Hooks(stopwatch=book, breaker=QUICK), deadline_ms=deadline_ms,
            )
            for i, book in enumerate(self.books)
        ]  # fmt: skip
        self._threads = [
            threading.Thread(target=self._infer, args=(each,)) for each in self.devices
        ]
        for thread in self._threads:
            thread.start()

    def _infer(self, device: Device) -> None:
        seed = 0
        while self._going:
            seed += 1
            inputs = example(seed=seed)
            start = time.perf_counter()
            by, wrong = "refused", False
            try:
                outputs = device.infer(inputs)
                assert device.last is not None
                by = "local" if device.last.answered_by == "device" else "by_server"
                wrong = not np.allclose(outputs["y"], inputs["t0"] + 4)
            except CansError:
                pass
            taken = (time.perf_counter() - start) * 1e3
            late = taken > self._deadline + GRACE_MS
            if late:  # by the machine, or by us?
                time.sleep(0.02)
                late = taken > self._deadline + GRACE_MS + self._lag.worst_ms(start)
            with self._lock:
                tally = self.tally
                tally.requests += 1
                setattr(tally, by, getattr(tally, by) + 1)
                tally.wrong += wrong
                tally.late += late
                tally.worst_ms = max(tally.worst_ms, taken)
            time.sleep(self._pause)

    def stop(self, settle: float = 10.0) -> None:
        self._going = False
        for thread in self._threads:
            thread.join()
        self._lag.close()
        for device in self.devices:
            until = time.monotonic() + settle
            while time.monotonic() < until and not device.joined:
                time.sleep(0.02)
            device.settle(settle)
            device.close()


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


def fill(folder: Path) -> Path:
    """A file that takes all the space there is."""
    filler = folder / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
    try:
        with suppress(OSError):
            while True:
                os.write(descriptor, b"x" * 512)
    finally:
        os.close(descriptor)
    return filler


# --- the faults ---


def server_killed(folder: Path, times: int) -> Tally:
    """SIGKILL at a random moment under a stream of uploads, and start again."""
    port, store = free_port(), f"sqlite:{folder / 'pools.sqlite'}"
    chance = random.Random(1)
    process = server(port, store)
    load = Load(f"127.0.0.1:{port}", folder)
    for _ in range(times):
        time.sleep(chance.uniform(0.05, 0.5))
        process.kill()
        process.start()
        wait_until(lambda: any(device.joined for device in load.devices))
    load.stop()
    process.stop()
    with opened(store) as pools:
        check_conservation(pools, load.devices, load.books)
        uploads = sum(account.pool.round for account in pools.accounts())
    load.tally.notes = {"kills": times, "uploads": uploads}
    return load.tally


def agent_killed(folder: Path, times: int) -> Tally:
    """SIGKILL of the device at a random moment; it starts again from its state file."""
    chance = random.Random(2)
    ledger, state = folder / "ledger", folder / "state"
    tally = Tally()
    with running(toy(), terms=eager()) as edge_server:
        process = agent(edge_server.server.port, state, ledger)
        for _ in range(times):
            time.sleep(chance.uniform(0.05, 0.4))
            process.kill()
            process.start()
        time.sleep(0.2)
        process.stop()
        assert process.child.returncode == 0
        kept = read((state / "state").read_bytes())
        model = toy()
        rounds, torn = [], 0
        for line in filter(None, ledger.read_text().splitlines()):
            try:
                row, *milliseconds = json.loads(line)
            except ValueError:  # killed while it wrote this, before it could commit anything
                torn += 1
                continue
            rounds.append((row, Latencies(*milliseconds)))
        assert torn <= times
        wanted = expected(rounds, model.table, eager().policy)
        held = stored(edge_server.store())
        lost = 0
        for record in kept.records:
            part = record.key.part
            offline = 2 if part == "front" else 0
            have = held[part].count + unsent(record).count - offline
            missing = wanted[part].count - have
            assert 0 <= missing <= times, f"{part}: {missing} missing of {wanted[part].count}"
            lost = max(lost, missing)
        tally.requests = len(rounds)  # the agent checks its answers itself, and would exit
        tally.notes = {"kills": times, "committed": kept.observations, "lost_at_most": lost}
    return tally


def link_cut(folder: Path, times: int) -> Tally:
    """The link goes silent (packets vanish) or is reset, and comes back."""
    port, store = free_port(), f"sqlite:{folder / 'pools.sqlite'}"
    process, proxy = server(port, store), Proxy(port)
    load = Load(proxy.address, folder, deadline_ms=500.0)
    for i in range(times):
        time.sleep(0.3)
        if i % 2:
            proxy.cut()
        else:
            proxy.silence()
            time.sleep(0.7)
            proxy.cut()
            proxy.restore()
        wait_until(lambda: any(device.joined for device in load.devices))
    load.stop()
    proxy.close()
    process.stop()
    with opened(store) as pools:
        check_conservation(pools, load.devices, load.books)
    load.tally.notes = {"cuts": times}
    return load.tally


def replies_delayed(folder: Path, seconds: float) -> Tally:
    """Every reply comes after the deadline: the device must not wait for it."""
    port, store = free_port(), f"sqlite:{folder / 'pools.sqlite'}"
    process, proxy = server(port, store), Proxy(port)
    load = Load(proxy.address, folder, deadline_ms=300.0, block_seconds=0.002)
    time.sleep(0.5)
    proxy.reply_delay = 0.5
    time.sleep(seconds)
    fallbacks = load.tally.local
    proxy.reply_delay = 0.0
    load.stop()
    proxy.close()
    process.stop()
    with opened(store) as pools:
        check_conservation(pools, load.devices, load.books)
    load.tally.notes = {"answered_locally_meanwhile": fallbacks}
    return load.tally


def duplicates_and_reordering(folder: Path, times: int) -> Tally:
    """Every upload is sent again, many times over, in any order."""
    chance = random.Random(3)
    tally = Tally()
    with running(toy(), terms=eager(), store=f"sqlite:{folder / 'pools.sqlite'}") as edge_server:
        load = Load(edge_server.address, folder)
        seen: list[Upload] = []
        for device in load.devices:
            link = device._contact.links[0]
            original = link.sync

            def spying(request, seconds, original=original):  # type: ignore[no-untyped-def]
                seen.extend(request.uploads)
                return original(request, seconds)

            link.sync = spying  # type: ignore[method-assign]
        time.sleep(1.0)
        while len(seen) < 5:  # devices upload what matters, when it does
            time.sleep(0.1)
        link = load.devices[0]._contact.links[0]
        for _ in range(times):
            again = chance.choices(seen, k=5)
            chance.shuffle(again)
            type(link).sync(link, SyncRequest(tuple(again)), 5.0).result(5.0)
        load.stop()
        check_conservation(edge_server.store(), load.devices, load.books)
        tally = load.tally
        tally.notes = {"uploads": len(seen), "repeats": 5 * times}
    return tally


def disk_full(folder: Path, seconds: float) -> Tally:
    """The server's disk fills up under it and is emptied again. Needs root, for a small tmpfs."""
    small = folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(small)], check=True)
    try:
        port, store = free_port(), f"sqlite:{small / 'pools.sqlite'}"
        process = server(port, store)
        load = Load(f"127.0.0.1:{port}", folder)
        time.sleep(0.5)
        filler = fill(small)
        time.sleep(seconds)
        owing = sum(device._experience.owes for device in load.devices)
        filler.unlink()
        time.sleep(1.5)
        load.stop()
        process.stop()
        load.tally.notes = {"devices_with_undelivered_uploads_meanwhile": owing}
        with opened(store) as pools:
            check_conservation(pools, load.devices, load.books)
        return load.tally
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def device_disk_full(folder: Path, seconds: float) -> Tally:
    """The device's own disk fills up: it answers, learns, and uploads nothing it could forget."""
    small = folder / "device-0"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True)
    try:
        with running(toy(), terms=eager(), store=f"sqlite:{folder / 'p.sqlite'}") as edge_server:
            load = Load(edge_server.address, folder, devices=1)
            time.sleep(0.3)
            filler = fill(small)
            time.sleep(seconds)
            filler.unlink()
            time.sleep(0.5)
            load.stop()
            check_conservation(edge_server.store(), load.devices, load.books)
            return load.tally
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def postgres_restarted(folder: Path, postgres: Postgres, times: int) -> Tally:
    """The database stops hard under a server and comes back."""
    port = free_port()
    process = server(port, postgres.url)
    load = Load(f"127.0.0.1:{port}", folder)
    for _ in range(times):
        time.sleep(0.5)
        postgres.stop("immediate")
        time.sleep(0.5)
        postgres.start()
    time.sleep(1.5)
    load.stop()
    process.stop()
    with opened(postgres.url) as pools:
        check_conservation(pools, load.devices, load.books)
    load.tally.notes = {"restarts": times}
    return load.tally


def one_of_two_killed(folder: Path, postgres: Postgres, times: int) -> Tally:
    """Two servers on one database; each in turn is killed under load and started again."""
    ports = [free_port(), free_port()]
    servers = [server(port, postgres.url) for port in ports]
    load = Load(",".join(f"127.0.0.1:{port}" for port in ports), folder, devices=4)
    for i in range(times):
        time.sleep(0.4)
        servers[i % 2].kill()
        wait_until(lambda: all(device.joined for device in load.devices))
        servers[i % 2].start()
    load.stop()
    for each in servers:
        each.stop()
    with opened(postgres.url) as pools:
        check_conservation(pools, load.devices, load.books)
    load.tally.notes = {"kills": times}
    return load.tally


def clock_jumped(folder: Path, seconds: float) -> Tally:
    """The wall clock of the server's process jumps an hour ahead and a day back while it runs."""
    port, store = free_port(), f"sqlite:{folder / 'pools.sqlite'}"
    clock = folder / "clock"
    clock.write_text("0")
    process = server(port, store, clock=str(clock))
    load = Load(f"127.0.0.1:{port}", folder)
    for jump in (0, 3600, -86400, 0):
        clock.write_text(str(jump))
        time.sleep(seconds / 4)
    load.stop()
    process.stop()
    with opened(store) as pools:
        check_conservation(pools, load.devices, load.books)
    load.tally.notes = {"jumps": 3}
    return load.tally


# --- the table ---


def main() -> None:
    postgres = Postgres()
    runs: dict[str, Callable[[Path], Tally]] = {
        "server killed (-9) mid-upload, 50 times": lambda f: server_killed(f, 50),
        "agent killed (-9), 50 times": lambda f: agent_killed(f, 50),
        "link cut and restored, 20 times": lambda f: link_cut(f, 20),
        "replies delayed past the deadline, 10 s": lambda f: replies_delayed(f, 10.0),
        "uploads duplicated and reordered, 2000 times": lambda f: duplicates_and_reordering(f, 400),
        "server's disk full, 5 s": lambda f: disk_full(f, 5.0),
        "device's disk full, 5 s": lambda f: device_disk_full(f, 5.0),
        "PostgreSQL stopped hard and restarted, 10 times":
            lambda f: postgres_restarted(f, postgres, 10),
        "one of two servers killed under load, 20 times":
            lambda f: one_of_two_killed(f, fresh(postgres), 20),
        "server's clock jumped +1 h and -1 d": lambda f: clock_jumped(f, 8.0),
    }  # fmt: skip
    wanted = sys.argv[1:]
    print("| fault | requests | by the server | by the device | clear errors | wrong | late |"
          " worst ms | notes |\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    for name, run in runs.items():
        if wanted and not any(word in name for word in wanted):
            continue
        if "PostgreSQL" in name:
            fresh(postgres)
        folder = Path(tempfile.mkdtemp(prefix="cans-fault-"))
        try:
            tally = run(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        tally.check()
        notes = ", ".join(f"{value:g} {key.replace('_', ' ')}" for key, value in
                          tally.notes.items())  # fmt: skip
        print(
            f"| {name} | {tally.requests} | {tally.by_server} | {tally.local} | {tally.refused} | "
            f"{tally.wrong} | {tally.late} | {tally.worst_ms:.0f} | {notes} |",
            flush=True,
        )
    postgres.close()


def fresh(postgres: Postgres) -> Postgres:
    import psycopg

    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(
            "DROP TABLE IF EXISTS cans_pools, cans_senders, cans_refusals, cans_groups, "
            "cans_members, cans_layout"
        )
    return postgres


if __name__ == "__main__":
    main()
