"""Compiles the learner's functions and the round loop with numba, without touching either.

Each function is rebuilt over a namespace in which the functions it calls are already compiled, in
the order they are written. The cache folder carries a digest of the sources, because numba looks
only at the outermost function's file when it decides whether a cached machine code is still good.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Lock
from types import FunctionType, ModuleType
from typing import Any

from cans.cache import cache_folder
from cans.learning.arithmetic import arrays, choosing, exchange, linear, physical, pooling
from cans.simulation.engines import fast

COMPILED = (linear, physical, exchange, pooling, choosing, fast)
"""In this order: each module calls only functions of those before it."""


def numba_installed() -> bool:
    """Whether the compiled engine is available (extra `sim`)."""
    from importlib.util import find_spec

    return find_spec("numba") is not None


_compiling = Lock()


def compiled_functions() -> dict[str, Callable[..., Any]]:
    """Every function of the learner's arithmetic and of `fast`, compiled."""
    with _compiling:  # the folder of the cache is a setting of the whole process
        return _compile_all()


@cache
def _compile_all() -> dict[str, Callable[..., Any]]:
    import numba
    from numba.core import config

    before = config.CACHE_DIR
    config.CACHE_DIR = str(_cache_folder())
    try:
        jit = numba.njit(cache=True, nogil=True, error_model="numpy")
        functions: dict[str, Callable[..., Any]] = {}
        for module in COMPILED:
            functions |= _compile(module, functions, jit)
        return functions
    finally:
        config.CACHE_DIR = before


def _compile(
    module: ModuleType, known: dict[str, Any], jit: Callable[..., Any]
) -> dict[str, Callable[..., Any]]:
    namespace = {**vars(module), **known}
    compiled = {}
    for name, function in vars(module).items():
        if inspect.isfunction(function) and function.__module__ == module.__name__:
            rebuilt = FunctionType(function.__code__, namespace, name, function.__defaults__)
            rebuilt.__module__ = module.__name__
            rebuilt.__qualname__ = name
            namespace[name] = compiled[name] = jit(rebuilt)
    return compiled


def _cache_folder() -> Path:
    sources = "".join(inspect.getsource(module) for module in (arrays, *COMPILED))
    digest = hashlib.sha256(sources.encode()).hexdigest()[:12]
    return cache_folder("compiled", digest)
