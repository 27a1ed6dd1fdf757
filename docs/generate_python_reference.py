#!/usr/bin/env python3
"""Writes docs/reference/python-api.md from the docstrings and signatures of the Python package.

    docs/generate_python_reference.py
    docs/generate_python_reference.py --check    compares only; ends with 1 if the page differs

Reads the sources, and imports nothing. A module is public if it has `__all__`, and a member of a class if its name has
no underscore in front. Needs Python 3.9 and its standard library.
"""

import argparse
import ast
import inspect
import pathlib
import sys
import textwrap
from typing import Iterator, List, Tuple, Union

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "python"
PAGE = ROOT / "docs" / "reference" / "python-api.md"
WIDTH = 120
INTRODUCTION = """\
# Python API

The public names of the package `cairn`. The guides [Python](../guides/python.md) and [PyTorch](../guides/pytorch.md)
show their use. This page is made from the docstrings, by `docs/generate_python_reference.py`.
"""

Function = (ast.FunctionDef, ast.AsyncFunctionDef)
Definition = Union[ast.ClassDef, ast.FunctionDef]


def parse(module: str) -> ast.Module:
    path = SOURCES / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def public_names(tree: ast.Module) -> List[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return list(ast.literal_eval(node.value))
    return []


def public_modules() -> List[str]:
    """The package, then its modules by name."""
    paths = sorted(SOURCES.glob("cairn/**/*.py"))
    modules = sorted(str(path.relative_to(SOURCES).with_suffix("")).replace("/", ".").removesuffix(".__init__")
                     for path in paths)
    return [module for module in modules if public_names(parse(module))]


def definition(module: str, name: str) -> Tuple[str, Definition]:
    """The class or function that a module defines or imports by this name, and the module that defines it."""
    for node in ast.walk(parse(module)):
        if isinstance(node, (ast.ClassDef, *Function)) and node.name == name and not is_overload(node):
            return module, node
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cairn"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return definition(node.module, alias.name)
    sys.exit(f"generate_python_reference: {module} has no class or function {name}")


def is_overload(node: Definition) -> bool:
    """Whether this only declares one form of a function, whose definition with the docstring follows."""
    return any(isinstance(decorator, ast.Name) and decorator.id == "overload" for decorator in node.decorator_list)


def signature(name: str, node: ast.FunctionDef, bound: bool) -> str:
    """The call as a program writes it, with types, in lines of at most WIDTH columns."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    parts = [described(*pair) for pair in zip(positional, defaults)][1 if bound else 0:]
    if arguments.vararg:
        parts.append("*" + described(arguments.vararg, None))
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [described(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg:
        parts.append("**" + described(arguments.kwarg, None))
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{name}({', '.join(parts)}){result}"
    if len(line) <= WIDTH:
        return line
    lines = [""]
    for part in parts:
        if len(lines[-1]) + len(part) + 6 > WIDTH and lines[-1]:
            lines.append("")
        lines[-1] += f"{part}, " if part != parts[-1] else part
    return f"{name}(\n" + "\n".join(f"    {each.rstrip()}" for each in lines) + f"\n){result}"


def described(argument: ast.arg, default: Union[ast.expr, None]) -> str:
    text = argument.arg + (f": {ast.unparse(argument.annotation)}" if argument.annotation else "")
    if default is None:
        return text
    return text + (" = " if argument.annotation else "=") + ast.unparse(default)


def prose(node: Union[Definition, ast.Module]) -> Iterator[str]:
    """The docstring as Markdown: indented blocks are code."""
    text = inspect.cleandoc(ast.get_docstring(node, clean=True) or "")
    for block in text.split("\n\n"):
        if not block:
            continue
        if block.startswith("    "):
            yield from ("```python", textwrap.dedent(block), "```", "")
        else:
            yield from (block, "")


def members(node: ast.ClassDef) -> Iterator[Tuple[str, ast.FunctionDef]]:
    """The public methods and properties that have docstrings, in the order of the class."""
    for child in node.body:
        if isinstance(child, Function) and not child.name.startswith("_") and ast.get_docstring(child):
            is_property = any(isinstance(d, ast.Name) and d.id == "property" for d in child.decorator_list)
            is_bound = not any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in child.decorator_list)
            if is_property:
                kind = f": {ast.unparse(child.returns)}" if child.returns else ""
                yield f"{child.name}{kind}", child
            else:
                yield signature(child.name, child, is_bound), child


def inherited(module: str, node: ast.ClassDef) -> Iterator[Tuple[str, ast.FunctionDef]]:
    """Those of the base classes that the module imports from the package, unless the class has its own."""
    imported = [alias.asname or alias.name for child in parse(module).body
                if isinstance(child, ast.ImportFrom) and (child.module or "").startswith("cairn") for alias in child.names]
    own = {child.name for child in node.body if isinstance(child, Function)}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in imported:
            _, base_node = definition(module, base.id)
            yield from (pair for pair in members(base_node) if pair[1].name not in own)


def entry(full_name: str, module: str, node: Definition) -> Iterator[str]:
    yield from (f"### {full_name}", "")
    if not ast.get_docstring(node):
        sys.exit(f"generate_python_reference: {full_name} has no docstring")
    if isinstance(node, Function):
        yield from ("```python", signature(full_name, node, False), "```", "", *prose(node))
        return
    initializer = next((c for c in node.body if isinstance(c, Function) and c.name == "__init__"), None)
    if initializer is not None and ast.get_docstring(initializer):
        yield from ("```python", signature(full_name, initializer, True), "```", "")
    bases = [ast.unparse(base) for base in node.bases]
    yield from prose(node)
    if bases:
        yield from (f"A subclass of `{'`, `'.join(bases)}`.", "")
    fields = [ast.unparse(c) for c in node.body if isinstance(c, ast.AnnAssign) and not ast.unparse(c.target).startswith("_")]
    if fields:
        yield from ("```python", *fields, "```", "")
    if initializer is not None and ast.get_docstring(initializer):
        yield from prose(initializer)
    for line, member in (*members(node), *inherited(module, node)):
        yield from (f"#### {full_name.rsplit('.', 1)[-1]}.{member.name}", "", "```python", line, "```", "", *prose(member))


def page() -> str:
    lines = [INTRODUCTION]
    for module in public_modules():
        tree = parse(module)
        lines += [f"## {module}", "", *prose(tree)]
        for name in public_names(tree):
            lines += entry(f"{module}.{name}", *definition(module, name))
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    text = page()
    if not parser.parse_args().check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE.relative_to(ROOT)} differs from the docstrings: run docs/generate_python_reference.py")


if __name__ == "__main__":
    main()
