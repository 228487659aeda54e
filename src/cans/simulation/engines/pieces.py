# mypy: disable-error-code="misc"
# (numba has no types of its own)
"""Compiles a function that Python calls, and all that it calls as pieces of it.

numba links every function with all that it calls, optimises the whole and makes machine code of it,
though only the outermost is ever run: a function that is called six deep goes through that six
times. A piece is linked, and left to the function that it becomes part of.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class Piece(JITCodeLibrary):
    """The code of a function that is never run by itself."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> Piece:
        """Who is asked to `set_env`."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        """What the function needs of Python when it runs: `EntryCompiler` sees to it."""


class EntryCompiler(Compiler):
    """numba's compiler, for a function that Python calls."""

    def _compile_core(self) -> Any:
        codegen, name = self.state.targetctx.codegen(), self.state.func_id.func_qualname
        self.state.library = codegen.create_library(name)
        self.state.library.enable_object_caching()
        before = codegen._library_class
        codegen._library_class = Piece
        try:
            compiled = super()._compile_core()
        finally:
            codegen._library_class = before
        for environment in compiled._find_referenced_environments():
            codegen.set_env(environment.env_name, environment)
        return compiled
