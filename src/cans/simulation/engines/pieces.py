# mypy: disable-error-code="misc"
# (numba has no types of its own)
"""Compiles functions that only compiled code calls as far as their callers need it, no further.

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
        """Python objects for the running function, which messages that it makes up would need."""


class PieceCompiler(Compiler):
    """numba's compiler, of pieces."""

    def define_pipelines(self) -> Any:
        if self.state.library is None:
            codegen = self.state.targetctx.codegen()
            self.state.library = Piece(codegen, self.state.func_id.func_qualname)
        return super().define_pipelines()
