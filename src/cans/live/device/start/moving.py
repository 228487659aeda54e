"""A server has a new model under the name of this device's: fetch it, and move over to it.

All of it happens beside the device, which goes on with the model that it has: asking for the new
one, fetching, cutting and the first runs. Only then callers are held up, for as long as it takes to
put one in the place of the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread
from time import monotonic

from cans.errors import CansError, InputError, Refused
from cans.learning import DeviceIdentity
from cans.live.device.options import DeviceOptions
from cans.live.device.servers.contact import Contact
from cans.live.device.start.own_model import the_servers
from cans.live.device.start.startup import WholeTimes, with_own_floor
from cans.live.preparing import prepare_fronts
from cans.live.split import SplitModel
from cans.live.wire.messages import Welcome
from cans.models.run import background

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 3.0  # after a try that failed
Measure = Callable[[SplitModel], WholeTimes]
Move = Callable[[SplitModel, WholeTimes], bool]


class Mover:
    """Moves a device over to new models, one at a time. `begin` is called by the agent."""

    def __init__(
        self, options: DeviceOptions, contact: Contact, named: bool, measure: Measure, move: Move
    ) -> None:
        """`named`: the user wants this model; otherwise whatever the server has."""
        self._options = options
        self._contact = contact
        self._named = named
        self._measure = measure
        self._move = move  # puts the new model in place; False: not now, or the device is closing
        self._thread: Thread | None = None
        self._not_before = 0.0
        self._said = ""
        self.closed = False

    def begin(self, server: int, who: DeviceIdentity, present: SplitModel) -> None:
        """This server does not have the present model: see what it has under the same name."""
        busy = self._thread is not None and self._thread.is_alive()
        if busy or self.closed or monotonic() < self._not_before:
            return

        def work() -> None:
            try:
                self._follow(server, who, present)
            except CansError as error:
                self._not_before = monotonic() + _RETRY_SECONDS
                self._warn("this device keeps its model", str(error))
            except Exception:
                self._not_before = monotonic() + _RETRY_SECONDS
                _log.exception("the new model of the server cannot be used")

        self._thread = background.start(work, "cans-move")

    def _follow(self, server: int, who: DeviceIdentity, present: SplitModel) -> None:
        welcome = self._ask(server, who, present.name)
        if welcome.table.digest == present.digest or self.closed:
            return
        options = self._options
        model = the_servers(self._contact, server, welcome, options)
        _check_alike(present, model)
        with_own_floor(options.constraints, model)  # raises where the privacy floor is not known
        if options.prepare:
            prepare_fronts(model, options.local)
        times = self._measure(model)
        while not self.closed and not self._move(model, times):
            pass  # callers were inside for too long; it waits for a moment itself
        if not self.closed:
            self._said = ""
            _log.warning(
                "moved over to the new model of the server",
                extra={"model": model.name, "digest": model.digest[:12]},
            )

    def _ask(self, server: int, who: DeviceIdentity, name: str) -> Welcome:
        try:
            return self._contact.join(server, who, name)
        except Refused as error:
            if self._named or error.code != "NOT_FOUND":
                raise
            return self._contact.join(server, who, "")

    def _warn(self, what: str, reason: str) -> None:
        if reason != self._said:
            self._said = reason
            _log.warning(what, extra={"reason": reason})

    def close(self) -> None:
        """Wait for what runs; links are closed by then, so that nothing waits for a server."""
        if self._thread is not None:
            background.join_patiently(self._thread)


def _check_alike(present: SplitModel, new: SplitModel) -> None:
    """A running program must be able to use the new model as it used the present one."""
    before, after = (
        [(each.name, each.dtype, each.shape) for each in one.inputs] for one in (present, new)
    )
    if before != after or set(present.outputs) != set(new.outputs):
        raise InputError(
            f"the new {new.name} of the server has other inputs or outputs; start this device again"
        )
