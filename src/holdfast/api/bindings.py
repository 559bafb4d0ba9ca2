"""Finds the source line where a variable got its value; for messages, so None is allowed."""

from __future__ import annotations

import ast
import linecache
import os
from collections.abc import Iterator
from types import CodeType

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def captured_at(code: CodeType, name: str) -> str | None:
    """Return `file.py:12`, the line of an enclosing function that gave `name` its value."""
    tree = _parsed(code.co_filename)
    if tree is None:
        return None
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, _Function) and _contains(node, code) and not _is_same(node, code)
    ]
    for function in sorted(around, key=lambda node: -node.lineno):
        if lines := [line for bound, line in _bound_in(function) if bound == name]:
            return _place(code, max(lines))
    return None


def set_at(code: CodeType, name: str) -> str | None:
    """Return `file.py:12`, the line of the module that gave the global `name` its value."""
    tree = _parsed(code.co_filename)
    lines = [] if tree is None else [line for bound, line in _bound_in(tree) if bound == name]
    return _place(code, max(lines)) if lines else None


def defines(source: str, name: str) -> bool:
    """Whether a module with this source defines `name`, judged without running it.

    An `import *` counts as defining every name. Source that cannot be parsed defines none.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return any(bound in (name, "*") for bound, _ in _bound_in(tree))


def _parsed(filename: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return None


def _contains(node: _Function, code: CodeType) -> bool:
    return node.lineno <= code.co_firstlineno <= (node.end_lineno or node.lineno)


def _is_same(node: _Function, code: CodeType) -> bool:
    """Whether `code` is this function's own; it begins at the first decorator."""
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return node.name == code.co_name and first == code.co_firstlineno


def _bound_in(scope: ast.Module | _Function) -> Iterator[tuple[str, int]]:
    """Yield the names that a scope binds, with their lines; not those of functions inside it."""
    if not isinstance(scope, ast.Module):
        arguments = scope.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += filter(None, (arguments.vararg, arguments.kwarg))
        yield from ((parameter.arg, parameter.lineno) for parameter in parameters)
    left: list[ast.AST] = list(scope.body) if isinstance(scope.body, list) else [scope.body]
    while left:
        node = left.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
                continue
            case ast.Lambda():
                continue
            case ast.Name(id=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    yield alias.asname or alias.name.partition(".")[0], node.lineno
            case ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case _:
                pass
        left.extend(ast.iter_child_nodes(node))


def _place(code: CodeType, line: int) -> str:
    return f"{os.path.basename(code.co_filename)}:{line}"
