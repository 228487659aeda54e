"""Compiles the learner's functions and the round loop with numba, without touching either.

Each function is rebuilt over a namespace in which the functions it calls are already compiled, in
the order they are written. Only what Python calls is cached: the rest are `pieces` of it. The
folder of the cache carries a digest of the sources, because numba looks only at the outermost
function's file when it decides whether cached machine code is still good.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from threading import Lock
from types import FunctionType, ModuleType
from typing import Any

from cans.cache import cache_folder
from cans.learning.arithmetic import (
    arrays,
    choosing,
    estimating,
    exchange,
    idle,
    linear,
    nonnegative,
    observing,
    pooling,
    scoring,
)
from cans.learning.arithmetic.by_choice import barring, bending, counts, deviations, looks, personal
from cans.simulation.engines import exchanging, fast, loops, measuring

COMPILED = (
    loops,
    linear,
    nonnegative,
    counts,
    deviations,
    barring,
    observing,
    estimating,
    personal,
    bending,
    scoring,
    looks,
    idle,
    exchange,
    pooling,
    choosing,
    exchanging,
    measuring,
    fast,
)
"""In this order: each module calls only functions of those before it. Where two have one name, the
first counts: `loops` takes the place of what it spells for the compiler."""

ENTRIES = ("enrol", "play")
"""What Python calls; all others are called by compiled code alone."""


def numba_installed() -> bool:
    """Whether the compiled engine is available (extra `sim`)."""
    from importlib.util import find_spec

    return find_spec("numba") is not None


def is_compiled() -> bool:
    """Whether machine code of these sources is in the cache: the first run compiles for minutes."""
    return any(_cache_folder().rglob("fast.play-*.nbi"))


_compiling = Lock()


def compiled_functions() -> dict[str, Callable[..., Any]]:
    """The functions that Python calls, compiled with the learner's arithmetic that they call."""
    with _compiling:  # the folder of the cache is a setting of the whole process
        return _compile_all()


@cache
def _compile_all() -> dict[str, Callable[..., Any]]:
    from numba.core import config

    before = config.CACHE_DIR
    config.CACHE_DIR = str(_cache_folder())
    try:
        functions: dict[str, Callable[..., Any]] = {}
        for module in COMPILED:
            functions |= _compile(module, functions)
        return {name: _by_reference(functions[name]) for name in ENTRIES}
    finally:
        config.CACHE_DIR = before


def _compile(module: ModuleType, known: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    import numba
    from numba.core.compiler import Compiler

    from cans.simulation.engines.pieces import EntryCompiler

    namespace = {**vars(module), **known}
    compiled = {}
    for name, function in vars(module).items():
        own = inspect.isfunction(function) and function.__module__ == module.__name__
        if own and name not in known:
            rebuilt = FunctionType(function.__code__, namespace, name, function.__defaults__)
            rebuilt.__module__ = module.__name__
            rebuilt.__qualname__ = name
            entry = name in ENTRIES
            jit = numba.njit(
                cache=entry,
                nogil=True,
                error_model="numpy",
                no_cpython_wrapper=not entry,
                no_cfunc_wrapper=True,
                pipeline_class=EntryCompiler if entry else Compiler,
            )
            namespace[name] = compiled[name] = jit(rebuilt)
    return compiled


def _by_reference(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function whose named tuples are handed over as one pointer each."""
    from cans.simulation.engines.references import refer

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*(refer(a) if isinstance(a, tuple) else a for a in arguments))

    return call


def _cache_folder() -> Path:
    sources = "".join(inspect.getsource(module) for module in (arrays, *COMPILED))
    effort = os.environ.get("NUMBA_OPT", "")  # of the compiler; numba itself does not look
    digest = hashlib.sha256((sources + effort).encode()).hexdigest()[:12]
    return cache_folder("compiled", digest)
