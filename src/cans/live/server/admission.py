"""Who may wait for a worker, and whose turn it is. No clock, no threads: the times come in.

Start-time fair queueing: every job gets a virtual start, that of its device's previous job plus
what that one was expected to take (divided by the device's weight), but never before the job that
runs now; the lowest runs next. A device that sends sixty requests at once thus takes turns with one
that sends a single one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf

from cans.errors import Busy

_SMOOTHING = 0.2  # weight of the newest measurement in the expected time of a job
_MOST_DOUBTS = 16
_LEAST_MS = 0.01  # of a job nobody has timed: its turn must count for something


@dataclass(frozen=True, eq=False)
class Ticket:
    """A job that was admitted; tickets are equal only to themselves."""

    kind: Hashable
    device: str
    expected_ms: float
    start: float  # virtual


class Admission:
    """Counts jobs, estimates how long a new one would wait, and says which is next."""

    def __init__(self, workers: int, queue: int) -> None:
        self.workers = workers
        self.queue = queue
        self._running: set[Ticket] = set()
        self._riding: set[Ticket] = set()  # run together with one of those
        self._waiting: dict[str, list[Ticket]] = {}  # by device, in order
        self._expected: dict[Hashable, float] = {}
        self._refusals: dict[Hashable, int] = {}  # of jobs of a kind since one was taken in
        self._now = 0.0  # virtual time: the start of the job that was begun last
        self._finish: dict[str, float] = {}  # virtual, of each device's last job

    @property
    def inside(self) -> int:
        """Jobs that are running or waiting."""
        return self.running + len(self._riding) + self.waiting

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def expected_ms(self, kind: Hashable) -> float:
        """How long a job of this kind takes; 0 before the first one."""
        return self._expected.get(kind, 0.0)

    @property
    def typical_ms(self) -> float:
        """How long a job of any kind takes; 0 before the first one."""
        return sum(self._expected.values()) / len(self._expected) if self._expected else 0.0

    def wait_ms(self, device: str = "") -> float:
        """How long a job of this device, admitted now, would wait for a worker: behind its own, and
        behind as many of every other device."""
        if self.running + self.waiting < self.workers:
            return 0.0
        turn = len(self._waiting.get(device, ())) + 1
        ahead = sum(each.expected_ms for each in (*self._running, *self._riding))
        for other, line in self._waiting.items():
            ahead += sum(each.expected_ms for each in (line if other == device else line[:turn]))
        return ahead / self.workers

    def ahead(self, device: str) -> tuple[list[Ticket], list[Ticket]]:
        """Jobs of others that run, and that a device with nothing waiting would wait behind: one of
        each, because they take turns."""
        running = [each for each in self._running if each.device != device]
        waiting = [line[0] for other, line in self._waiting.items() if other != device]
        return running, waiting

    def riding(self, device: str) -> int:
        """Jobs of others that run together with one that `ahead` counts."""
        return sum(each.device != device for each in self._riding)

    def admit(
        self,
        kind: Hashable,
        remaining_ms: float | None,
        device: str = "",
        weight: float = 1.0,
        alone_ms: float = 0.0,
    ) -> tuple[Ticket, Ticket | None]:
        """Take a job in, or raise `Busy`. Returns its ticket, and that of the job which loses its
        place in a full queue to it: the last one of the device that has most waiting. `alone_ms`:
        what it takes if it runs with no other; it must be done in time even then."""
        expected = self.expected_ms(kind)
        if remaining_ms is not None:
            # Nobody times what is refused: one run that was slow by accident (a process that was
            # stopped, a session that was built) must not keep all others out for ever.
            doubts = self._refusals.get(kind, 0)
            takes = max(expected, alone_ms)
            needed = self.wait_ms(device) + takes / 2**doubts
            if needed > remaining_ms:
                self._refusals[kind] = min(doubts + (takes > remaining_ms), _MOST_DOUBTS)
                raise Busy(f"would take {needed:.0f} ms, the deadline is in {remaining_ms:.0f} ms")
        displaced = None
        if self.running + self.waiting >= self.workers + self.queue:
            displaced = self._longest_line(len(self._waiting.get(device, ())))
            if displaced is None:
                raise Busy(f"{self.inside} requests are waiting or running; answer locally")
            self.withdraw(displaced)
        self._refusals.pop(kind, None)
        start = max(self._now, self._finish.get(device, 0.0))
        self._finish[device] = start + max(expected, _LEAST_MS) / weight
        ticket = Ticket(kind, device, expected, start)
        self._waiting.setdefault(device, []).append(ticket)
        return ticket, displaced

    def _longest_line(self, mine: int) -> Ticket | None:
        """The last job of the longest line, if it is longer than the newcomer's would be."""
        longest = max(self._waiting.values(), key=len, default=None)
        return longest[-1] if longest is not None and len(longest) > mine + 1 else None

    def next(self) -> Ticket | None:
        """The job to run now, if one waits; it is running from then on."""
        line = min(self._waiting.values(), key=lambda each: each[0].start, default=None)
        if line is None:
            return None
        ticket = line[0]
        self.withdraw(ticket)
        self._running.add(ticket)
        self._now = max(self._now, ticket.start)
        if len(self._finish) > 1024:  # those that lie behind say nothing any more
            self._finish = {who: at for who, at in self._finish.items() if at > self._now}
        return ticket

    def company(self, ticket: Ticket) -> list[Ticket]:
        """Waiting jobs of the same kind, in turn, that could run together with one that has just
        begun: none that would overtake a job of another kind."""
        waiting = [each for line in self._waiting.values() for each in line]
        first = min((each.start for each in waiting if each.kind != ticket.kind), default=inf)
        same = (each for each in waiting if each.kind == ticket.kind and each.start <= first)
        return sorted(same, key=lambda each: each.start)

    def ride(self, ticket: Ticket) -> None:
        """A waiting job runs together with one that has just begun."""
        self.withdraw(ticket)
        self._riding.add(ticket)
        self._now = max(self._now, ticket.start)

    def again(self, ticket: Ticket) -> None:
        """A running job goes back to the head of its device's line: its worker is gone."""
        self._running.discard(ticket)
        self._waiting.setdefault(ticket.device, []).insert(0, ticket)

    def withdraw(self, ticket: Ticket) -> bool:
        """Take a waiting job out of the queue; False: it is not waiting."""
        line = self._waiting.get(ticket.device)
        if line is None or ticket not in line:
            return False
        line.remove(ticket)
        if not line:
            del self._waiting[ticket.device]
        return True

    def drop_waiting(self) -> list[Ticket]:
        """Take every waiting job out."""
        found = [each for line in self._waiting.values() for each in line]
        self._waiting.clear()
        return found

    def finished(self, ticket: Ticket, compute_ms: float | None) -> None:
        """A running job has left; None: it failed. Of a batch each has its share of the time: what
        one more of them costs."""
        self._running.discard(ticket)
        self._riding.discard(ticket)
        if compute_ms is not None:
            before = self._expected.get(ticket.kind, compute_ms)
            self._expected[ticket.kind] = before + _SMOOTHING * (compute_ms - before)
