"""An independent account of what devices observed, to hold the law of conservation against."""

from __future__ import annotations

from collections.abc import Sequence

from cans.learning import Choice, Latencies, PartitionTable, Policy, SufficientStatistics
from cans.learning.device.part import PartRecord
from cans.live.device.device import Device
from cans.live.device.timing import Measured, Offline
from cans.live.store import Store


class Ledger:
    """A stopwatch that writes down everything it hands out."""

    def __init__(self) -> None:
        self.rounds: list[tuple[int, Latencies]] = []

    def latencies(self, choice: Choice, measured: Measured) -> Latencies:
        found = measured.latencies()
        self.rounds.append((choice.row, found))
        return found

    def offline(self, measured: Offline) -> Offline:
        return measured


def expected(
    rounds: Sequence[tuple[int, Latencies]], table: PartitionTable, policy: Policy
) -> dict[str, SufficientStatistics]:
    """The statistics of each shared part that these rounds must have made."""
    totals = {}
    for part in policy.parts:
        if part.shared:
            rows = table.columns(part.explains)
            total = SufficientStatistics.zero(rows.shape[1])
            for row, latencies in rounds:
                latency = latencies.of(part.explains)
                if latency is not None and rows[row].any():
                    total += SufficientStatistics.of(rows[row], latency)
            totals[part.name] = total
    return totals


def stored(store: Store) -> dict[str, SufficientStatistics]:
    """What the store holds for each part, over all pools, ended epochs and doubts included."""
    totals: dict[str, SufficientStatistics] = {}
    for account in store.accounts():
        total = account.pool.statistics
        if account.pool.retired is not None:
            total += account.pool.retired
        if account.pool.doubted is not None:
            total += account.pool.doubted
        part = account.key.part
        totals[part] = totals[part] + total if part in totals else total
    return totals


def check_conservation(store: Store, devices: Sequence[Device], books: Sequence[Ledger]) -> None:
    """Pools and buffers hold every observation exactly once, and the offline runs; what the server
    kept out is counted there and kept by the devices, sums included. An upload that has arrived
    and whose acknowledgement was lost is in both: the device sends it again, which changes
    nothing, so that it counts once."""
    held = stored(store)
    refused = sum(account.refused for account in store.accounts())
    assert refused == sum(device.refused for device in devices)
    learner = devices[0]._experience.learner
    assert learner is not None
    known = set(held)
    for device in devices:
        for record in device._experience.state.records:
            if record.key.part in known:
                held[record.key.part] += unsent(record)
                if record.sent is not None and arrived(store, device, record):
                    held[record.key.part] -= record.sent
        for each in device._experience.state.refused:
            held[each.key.part] += each.statistics
    sums = [expected(book.rounds, learner.table, learner.policy) for book in books]
    for part in learner.policy.parts:
        if part.shared:
            total = sum(
                (each[part.name] for each in sums),
                SufficientStatistics.zero(held[part.name].dimension),
            )
            offline = learner.hyperparameters.offline_runs * len(devices) if part.warm else 0
            assert held[part.name].count == total.count + offline
            if not offline and learner.policy.physical is None:  # `cans` weighs what it observes
                assert held[part.name].equals(total, 1e-9)


def arrived(store: Store, device: Device, record: PartRecord) -> bool:
    """Whether the server has merged the upload that this device takes to be on its way."""
    who = device.identity
    sender = (record.key, who.device, who.incarnation)
    with store._transaction() as transaction:
        return record.sequence - 1 in transaction.received(sender)


def unsent(record: PartRecord) -> SufficientStatistics:
    """What a device has observed and the server has not acknowledged, or will never take."""
    return record.local + record.retired
