"""Makes the sessions of an unmodified program ours: `onnxruntime.InferenceSession` is replaced as
soon as the program imports it. Imports nothing heavy itself, and never breaks the program.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

VARIABLE = "CANS_RUN"  # the options of `cans run`, as JSON
_PACKAGE = "onnxruntime"
_MADE_IN = "onnxruntime.capi.onnxruntime_inference_collection"


def install() -> None:
    """Wait for onnxruntime, with the options of the environment; without any, or in a process of
    our own (a device tries a model in one), do nothing."""
    text = os.environ.get(VARIABLE)
    if text and not _is_ours(sys.orig_argv):
        sys.meta_path.insert(0, _Finder(json.loads(text)))


def _is_ours(command: Sequence[str]) -> bool:
    """
    >>> _is_ours(["python", "-m", "cans.models.onnx.trial_process"]), _is_ours(["python", "app.py"])
    (True, False)
    """
    modules = [name for option, name in pairwise(command) if option == "-m"]
    return any(name.partition(".")[0] == "cans" for name in modules[:1])


def _called_by_us(frame: FrameType) -> bool:
    """Halves of models are sessions too, and theirs must stay onnxruntime's."""
    spec = frame.f_globals.get("__spec__")  # of `python -m`, whose name is __main__
    names = (str(frame.f_globals.get("__name__")), str(getattr(spec, "name", "")))
    return any(name.partition(".")[0] == "cans" for name in names)


class _Finder(MetaPathFinder):
    """Finds onnxruntime as everybody does, and has it patched once it is loaded."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _PACKAGE:
            return None
        sys.meta_path.remove(self)  # once is enough, and the next line must not come back here
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Patching(spec.loader, self._options)
        return spec


class _Patching(Loader):
    def __init__(self, inner: Loader, options: dict[str, Any]) -> None:
        self._inner, self._options = inner, options

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        try:
            patch(module, self._options)
        except Exception as error:
            print(f"cans: sessions stay as they are: {error}", file=sys.stderr)

    def __getattr__(self, name: str) -> Any:  # resource readers, file names
        return getattr(self._inner, name)


def patch(module: ModuleType, options: dict[str, Any]) -> None:
    """Replace the session of a loaded onnxruntime."""
    from cans.learning.constraints import Constraints
    from cans.live.wire.tls import ClientTls
    from cans.program.session import RUNTIME_KEYWORDS, InferenceSession, lossless_codecs

    given = dict(options)
    codecs = frozenset(given.pop("codecs", ())) or lossless_codecs()
    given["constraints"] = Constraints(allow_codec=codecs)
    if given.get("tls") is not None:
        given["tls"] = ClientTls(*(each and Path(each) for each in given["tls"]))
    server = given.pop("server")

    class Hooked(InferenceSession):
        def __init__(
            self,
            path_or_bytes: Any,
            sess_options: Any = None,
            providers: Any = None,
            provider_options: Any = None,
            **runtime: Any,
        ) -> None:
            helped_by = None if _called_by_us(sys._getframe(1)) else server
            # Of further keywords onnxruntime heeds these, and lets any other pass.
            heeded = {name: runtime[name] for name in RUNTIME_KEYWORDS if name in runtime}
            super().__init__(
                path_or_bytes, sess_options, providers, provider_options,
                server=helped_by, **given, **heeded,
            )  # fmt: skip

    Hooked.__name__ = Hooked.__qualname__ = "InferenceSession"
    Hooked.__init__.__qualname__ = "InferenceSession.__init__"  # in messages about its arguments
    for each in (module, sys.modules.get(_MADE_IN)):  # programs import it from either
        if each is not None:
            each.InferenceSession = Hooked  # type: ignore[attr-defined]
