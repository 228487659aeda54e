"""Every small change of the learner's physics, one at a time: does a fast test notice?

    python tests/mutants.py [estimating] [--every 10]     (`make mutants`; not part of CI)

A mutant is one operator, comparison, constant, call or branch of a module of `TESTS` changed, below
`learning/arithmetic`. Each meets the tests of its module, up to the first that fails, in a process
of its own, forked from one that has imported everything: there the code of the functions is
exchanged in place, so that whoever imported them by name has the mutant.
Prints the survivors; the exit code is 1 if fewer than 90 % are killed. Which survivors change
nothing that can be seen is said in `docs/policy-cans.md`, section "Tests".
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import inspect
import io
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

REPOSITORY = Path(__file__).parent.parent
ROOM = "cans.learning.arithmetic."
PHYSICAL, VIABILITY = "tests/learning/test_physical.py", "tests/learning/test_viability.py"
POOLING, DEVIATIONS = "tests/learning/test_pooling.py", "tests/learning/test_deviations.py"
IDLE, PERSONAL = "tests/learning/test_idle.py", "tests/learning/test_personal.py"
PICKS = "tests/learning/test_mutants.py::test_unchanged_it_equals_the_reference"
TESTS = {  # in this order: the first ones kill most of them, and fast
    "observing": [PHYSICAL, PICKS],
    "estimating": [PHYSICAL, PICKS],
    "by_choice.bending": [PHYSICAL, PICKS],
    "scoring": [PHYSICAL, PICKS],
    "nonnegative": [PHYSICAL, PICKS],
    "pooling": [POOLING, PHYSICAL, PICKS],
    "viability": [VIABILITY],
    "idle": [IDLE, PICKS],
    "by_choice.personal": [PERSONAL, PICKS],
    "by_choice.barring": [DEVIATIONS, PICKS],
    "by_choice.counts": [DEVIATIONS, PICKS],
}
BAR = 0.9
PLUGINS = ("cacheprovider", "xdist", "faulthandler")
OPTIONS = ["-x", "-q", "--timeout=0", "--assert=plain", *(f"-pno:{each}" for each in PLUGINS)]

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr,
}  # fmt: skip
RENAMED = {"max": "min", "min": "max", "maximum": "minimum", "argmin": "argmax", "any": "all",
           "all": "any"}  # fmt: skip


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What this node could be instead, and in words."""
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) if type(op) in SWAPPED:
            new = copy.deepcopy(node)
            new.op = SWAPPED[type(op)]()  # type: ignore[attr-defined]
            yield f"{type(op).__name__} -> {SWAPPED[type(op)].__name__}", new
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            new = copy.deepcopy(node)
            new.ops = [SWAPPED[type(op)]()]  # type: ignore[attr-defined, list-item]
            yield f"{type(op).__name__} -> {SWAPPED[type(op)].__name__}", new
        case ast.Constant(value=bool() as value):
            yield f"{value} -> {not value}", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield f"{value} -> {value + 1}", ast.Constant(value + 1)
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield "sign or not dropped", operand
        case ast.Name(id=name) if name in RENAMED:
            yield f"{name} -> {RENAMED[name]}", ast.Name(RENAMED[name], ast.Load())
        case ast.Attribute(attr=name) if name in RENAMED:
            new = copy.deepcopy(node)
            new.attr = RENAMED[name]  # type: ignore[attr-defined]
            yield f"{name} -> {RENAMED[name]}", new
        case ast.If():
            for outcome in (True, False):
                new = copy.deepcopy(node)
                new.test = ast.Constant(outcome)  # type: ignore[attr-defined]
                yield f"if {outcome}", new
        case ast.Assign() | ast.AugAssign() | ast.Break():
            yield "statement dropped", ast.Pass()


class _Replace(ast.NodeTransformer):
    def __init__(self, number: int, new: ast.AST) -> None:
        self.number, self.new, self.seen = number, new, -1

    def visit(self, node: ast.AST) -> ast.AST:
        self.seen += 1
        if self.seen == self.number:
            return ast.copy_location(self.new, node)
        return self.generic_visit(node)


def preorder(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from preorder(child)


def mutants(source: str) -> Iterator[tuple[int, str, ast.Module]]:
    """(line, what, the changed module) of every mutant of the functions and constants."""
    tree = ast.parse(source)
    hinted = {id(each) for node in ast.walk(tree) for each in _hints(node)}
    for number, node in enumerate(preorder(tree)):
        if id(node) in hinted or not hasattr(node, "lineno"):
            continue
        found = list(changes(node))
        if isinstance(node, ast.AugAssign):
            found.append(("statement dropped", ast.Pass()))
        if node in tree.body:  # without a constant the module has the one it was imported with
            found = [each for each in found if each[0] != "statement dropped"]
        for what, new in found:
            changed = _Replace(number, new).visit(copy.deepcopy(tree))
            yield node.lineno, what, ast.fix_missing_locations(changed)


def _hints(node: ast.AST) -> Iterator[ast.AST]:
    """Type hints: changing them changes nothing."""
    for name in ("annotation", "returns"):
        hint = getattr(node, name, None)
        if hint is not None:
            yield from ast.walk(hint)


def install(module: ModuleType, tree: ast.Module) -> None:
    """Exchange a module's functions, in place, and its constants."""
    namespace = dict(vars(module))
    exec(compile(tree, str(module.__file__), "exec"), namespace)
    for name, new in namespace.items():
        old = vars(module).get(name)
        old_function, new_function = inspect.unwrap(old), inspect.unwrap(new)  # type: ignore[arg-type]
        if isinstance(old_function, FunctionType) and old_function.__module__ == module.__name__:
            old_function.__code__ = new_function.__code__
            old_function.__defaults__ = new_function.__defaults__
            if hasattr(old, "cache_clear"):
                old.cache_clear()
        elif not isinstance(new, FunctionType | ModuleType | type):
            setattr(module, name, new)


def survives(module: ModuleType, tree: ast.Module, seconds: int = 600) -> bool:
    """Whether all tests pass with the mutant; one that hangs is killed."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(seconds)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                install(module, tree)
                outcome = pytest.main([*OPTIONS, *TESTS[module.__name__.removeprefix(ROOM)]]) != 0
            except BaseException:
                outcome = True
        os._exit(int(outcome))
    return os.waitpid(child, 0)[1] == 0


def main() -> int:
    """`--every 10`: each tenth mutant only, an estimate for the impatient."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("modules", nargs="*", help=f"only these of {', '.join(TESTS)}")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    os.chdir(REPOSITORY)
    sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "learning")]
    import_module("conftest")  # first: without it examples have deadlines, and noise kills mutants
    import test_mutants
    import test_physical  # noqa: F401  # imported once, before the forks
    import test_pooling  # noqa: F401
    import test_viability  # noqa: F401

    test_mutants.scenes()  # the reference's picks, which no mutant changes
    count, survivors = 0, []
    for name in given.modules or TESTS:
        module = import_module(ROOM + name)
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        assert survives(module, ast.parse(source)), "the tests fail without any mutant"
        for line, what, tree in islice(mutants(source), 0, None, given.every):
            count += 1
            if count % 20 == 0:
                print(f"{count} mutants, {len(survivors)} survive", file=sys.stderr, flush=True)
            if survives(module, tree):
                where = f"{name}.py:{line}"
                survivors.append(f"{where}: {what}: {source.splitlines()[line - 1].strip()}")
                print(survivors[-1], flush=True)
    killed = count - len(survivors)
    print(f"{killed} of {count} mutants killed ({killed / count:.1%})")
    return int(killed < BAR * count)


if __name__ == "__main__":
    raise SystemExit(main())
