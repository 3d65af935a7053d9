"""Mutants of a source file: its functions with one operator changed.

A mutant is a value that names its place by what is written there, not by a line number, so that a reviewed
list of equivalents outlives edits elsewhere. What only words an error is not changed (`raise`, f-strings),
nor what only asserts (`assert`, `strict` of a `zip`), nor what is evaluated when a module is imported.
"""

from __future__ import annotations

import ast
import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
# A file, a qualified name, a first line.
_CodePlace = tuple[str, str, int]

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLED = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """`name` tells it from every other of its file. `statement` is the line of the statement that it is in,
    from that of its function."""

    file: str
    function: str
    statement: int
    line: int
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.file} {self.name}"


def functions_of(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """The functions and methods that are not within another, each with its qualified name; of several of
    one name (a property's setter) the second is `name#2`."""
    seen: Counter[str] = Counter()

    def within(body: list[ast.stmt], path: str) -> Iterator[tuple[str, Function]]:
        for node in body:
            if isinstance(node, Function):
                name = path + node.name
                seen[name] += 1
                yield name if seen[name] == 1 else f"{name}#{seen[name]}", node
            elif isinstance(node, ast.ClassDef):
                yield from within(node.body, f"{path}{node.name}.")

    yield from within(tree.body, "")


def first_line(function: Function) -> int:
    """As `co_firstlineno` has it: that of the first decorator."""
    return min([function.lineno, *(d.lineno for d in function.decorator_list)])


_ONLY_SAID = (ast.Raise, ast.Assert, ast.JoinedStr, ast.pattern)
_NOT_RUN = ("annotation", "returns", "decorator_list", "args")

# A place to change: what is written there before and after, and what changes it.
_Place = tuple[ast.AST, str, Callable[[], None]]


def _places(node: ast.AST, statement: int = 0) -> Iterator[tuple[int, _Place]]:
    """(line of the statement, place) for each operator below a node, in the order of the source. The guard
    of a case belongs to its `match`."""
    for name, value in ast.iter_fields(node):
        if name in _NOT_RUN and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, _ONLY_SAID):
                continue
            if isinstance(child, ast.keyword) and child.arg == "strict":
                continue
            line = child.lineno if isinstance(child, ast.stmt) else statement
            for place in _changes(child):
                yield line, place
            yield from _places(child, line)


def _changes(node: ast.AST) -> Iterator[_Place]:
    def put(name: str, value: Any, n: int | None = None) -> Callable[[], None]:
        def change() -> None:
            if n is None:
                setattr(node, name, value)
            else:
                getattr(node, name)[n] = value

        return change

    match node:
        case ast.Compare(ops=ops):
            for n, op in enumerate(ops):
                other = _COMPARED[type(op)]
                yield node, _arrow(type(op), other), put("ops", other(), n)
        case ast.BoolOp(op=op):
            swapped: ast.boolop = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, _arrow(type(op), type(swapped)), put("op", swapped)
        case ast.BinOp(op=op) if type(op) in _CALCULATED:
            calculated = _CALCULATED[type(op)]
            yield node, _arrow(type(op), calculated), put("op", calculated())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            same = ast.copy_location(ast.Call(ast.Name("bool", ast.Load()), [operand], []), node)

            def drop() -> None:
                node.__class__ = ast.Call  # type: ignore[assignment]
                node.__dict__.clear()
                node.__dict__.update(same.__dict__)
                ast.fix_missing_locations(node)

            yield node, "not -> ", drop
        case ast.Constant(value=bool() as value):
            yield node, f"{value} -> {not value}", put("value", not value)
        case ast.Constant(value=int() as value):
            yield node, f"{value} -> {value + 1}", put("value", value + 1)
        case ast.Call(func=ast.Name(id=name) as called) if name in _CALLED:

            def call(called: ast.Name = called, name: str = name) -> None:
                called.id = _CALLED[name]

            yield node, f"{name} -> {_CALLED[name]}", call
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(
            test, ast.Compare | ast.BoolOp | ast.UnaryOp
        ):
            negated = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
            yield test, "if -> if not", put("test", negated)


def _arrow(before: type[ast.AST], after: type[ast.AST]) -> str:
    return f"{before.__name__} -> {after.__name__}"


def mutants_of(file: str, source: str) -> list[Mutant]:
    lines = source.splitlines()
    made: list[Mutant] = []
    for function, node in functions_of(ast.parse(source)):
        seen: Counter[str] = Counter()
        for statement, (at, change, _) in _places(node):
            line = getattr(at, "lineno", statement)
            text = f"{function}: {lines[line - 1].strip()} [{change}]"
            seen[text] += 1
            name = text if seen[text] == 1 else f"{text} ({seen[text]})"
            made.append(Mutant(file, function, statement - first_line(node), line, name))
    return made


def mutated(mutant: Mutant, source: str, path: str) -> CodeType:
    """The code of the mutant's function."""
    tree = ast.parse(source)
    known = mutants_of(mutant.file, source)
    nth = [m for m in known if m.function == mutant.function].index(mutant)
    node = next(f for name, f in functions_of(tree) if name == mutant.function)
    _, (_, _, change) = list(_places(node))[nth]
    change()
    place = mutant.function.partition("#")[0], first_line(node)
    [code] = [c for c in _compiled(tree, path) if (c.co_qualname, c.co_firstlineno) == place]
    return code


def probed(source: str, path: str, probe: str) -> list[CodeType]:
    """The code of each function, with a call of the builtin `probe` before each statement: its argument is
    the function, and the statement's line from that of the function."""
    tree = ast.parse(source)
    for function, node in functions_of(tree):
        _put_probes(node, function, first_line(node), probe)
    return _compiled(ast.fix_missing_locations(tree), path)


def _put_probes(node: ast.AST, function: str, start: int, probe: str) -> None:
    for _, value in ast.iter_fields(node):
        if not isinstance(value, list):
            continue
        for child in value:
            if isinstance(child, ast.AST):
                _put_probes(child, function, start, probe)
        if value and isinstance(value[0], ast.stmt):
            with_probes: list[ast.stmt] = []
            for statement in value:
                place = ast.Tuple(
                    [ast.Constant(function), ast.Constant(statement.lineno - start)], ast.Load()
                )
                call = ast.Expr(ast.Call(ast.Name(probe, ast.Load()), [place], []))
                for made in ast.walk(call):
                    ast.copy_location(made, statement)
                with_probes += [call, statement]
            value[:] = with_probes


def _compiled(tree: ast.Module, path: str) -> list[CodeType]:
    codes: list[CodeType] = []

    def walk(code: CodeType) -> None:
        for const in code.co_consts:
            if isinstance(const, CodeType):
                codes.append(const)
                if "<locals>" not in const.co_qualname:
                    walk(const)

    # A module's own flags (`from __future__ import …`) are in the tree; none of this file's are added.
    walk(compile(tree, path, "exec", dont_inherit=True))
    return codes


@dataclass(frozen=True, slots=True)
class Live:
    """The functions that live, by place, and the caches of results."""

    functions: dict[_CodePlace, list[FunctionType]]
    caches: list[Any]

    @staticmethod
    def found() -> Live:
        """Looks at every object: in a fork that copies the memory of all of them."""
        functions: dict[_CodePlace, list[FunctionType]] = {}
        caches: list[Any] = []
        for known in gc.get_objects():
            if isinstance(known, FunctionType):
                functions.setdefault(_place_of(known.__code__), []).append(known)
            elif type(known).__name__ == "_lru_cache_wrapper":
                caches.append(known)
        return Live(functions, caches)


def swap(codes: Iterable[CodeType], live: Live | None = None) -> list[CodeType]:
    """Gives the live functions at the places of `codes` this code, whatever decorates them. What they had,
    of each that was changed: swapped in turn, all is as it was."""
    live = live or Live.found()
    before: list[CodeType] = []
    for code in codes:
        for function in live.functions.get(_place_of(code), ()):
            was = function.__code__
            if code.co_freevars == was.co_freevars:
                function.__code__ = code
                before.append(was)
    if before:
        for cache in live.caches:
            cache.cache_clear()
    return before


def _place_of(code: CodeType) -> _CodePlace:
    return code.co_filename, code.co_qualname, code.co_firstlineno
