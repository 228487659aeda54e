"""The server's side of traces: what a request waited, and its back-end, below the device's span."""

from __future__ import annotations

from cans.live.server.fleet.happenings import Answered, Happening
from cans.live.server.fleet.recorder import Recorder
from cans.live.spans import Spans, TraceContext


class ServerTraces:
    """Listens to the recorder; requests that carry no trace leave none."""

    def __init__(self, recorder: Recorder, endpoint: str) -> None:
        self._recorder = recorder
        self._spans = Spans(endpoint, "cans-server")
        recorder.listeners.append(self._take_in)

    def _take_in(self, happenings: list[Happening]) -> None:
        for each in happenings:
            if isinstance(each, Answered) and each.trace:
                self._spread(each)

    def _spread(self, done: Answered) -> None:
        context = TraceContext.parse(done.trace)
        began = done.time - done.compute_ms / 1e3
        about = {
            "cans.model": self._recorder.model_name(done.model),
            "cans.point": done.point,
            "cans.codec": done.codec,
            "cans.device": done.device,
        }
        self._spans.add("wait", context.trace, context.span, began, done.queue_ms)
        self._spans.add("back-end", context.trace, context.span, done.time, done.compute_ms, about)

    def close(self) -> None:
        self._recorder.digest()
        self._spans.close()
