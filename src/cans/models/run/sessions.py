"""ONNX Runtime sessions over pieces of a model; all of them map the same weight files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any

import onnxruntime as ort
from numpy.typing import NDArray

from cans.errors import ModelError, RunError
from cans.models.onnx.weights import Weights, refer_to_files
from cans.models.run.runtime import RuntimeOptions
from cans.models.run.slicing import Piece

_ERRORS_ONLY = 3
ort.disable_telemetry_events()  # for programs that imported the runtime before `cans`


@dataclass(frozen=True)
class Session:
    """A runnable piece; safe to run from several threads at once."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    handle: ort.InferenceSession = field(repr=False)
    serial: int = field(default_factory=count().__next__)  # tells sessions apart, dropped ones too

    def run(self, values: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        try:
            found = self.handle.run(self.outputs, {name: values[name] for name in self.inputs})
        except Exception as error:  # the runtime's errors have no common base
            raise RunError(f"ONNX Runtime failed: {one_line(error)}") from None
        return dict(zip(self.outputs, found, strict=True))


def open_session(piece: Piece, weights: Weights, runtime: RuntimeOptions) -> Session:
    """A session for a piece; its big weights stay in their file and are mapped from there."""
    options = runtime.session_options()
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry("session.use_env_allocators", "1" if _one_arena() else "0")
    folder = refer_to_files(piece.proto.graph.initializer, weights)
    if folder is not None:
        key = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(key, str(folder))
    if not piece.pack:
        options.add_session_config_entry("session.disable_prepacking", "1")
    try:
        handle = ort.InferenceSession(
            piece.proto.SerializeToString(), options, providers=runtime.provider_list()
        )
    except Exception as error:
        raise ModelError(f"ONNX Runtime cannot run this model: {one_line(error)}") from None
    return Session(piece.inputs, piece.outputs, handle)


def one_line(error: Exception) -> str:
    """The runtime's message, whole and in one line."""
    return " ".join(str(error).split()) or type(error).__name__


@cache
def _one_arena() -> bool:
    """One pool of working memory for all sessions: they run in turn and would each keep its own."""
    info = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    try:
        ort.create_and_register_allocator(info, ort.OrtArenaCfg({}))
    except Exception:  # another user of the runtime in this process has registered one
        return False
    return True
