"""Find the file and line of a name in the code, by reading the source."""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent


def locate(name: str) -> tuple[pathlib.Path, int]:
    """Return the file, relative to the repository, and the line of a dotted name.

    Names are `package.module.function`, `package.module.Class.method`,
    `package.module.CONSTANT`, or `package.module.TABLE[key]` for an entry of a
    dictionary.
    """
    dotted, _, key = name.partition("[")
    parts = dotted.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        path = ROOT.joinpath(*parts[:cut]).with_suffix(".py")
        if path.is_file():
            break
    else:
        raise ValueError(f"{name}: no such module.")
    node: ast.AST = ast.parse(path.read_text())
    for part in parts[cut:]:
        node = _inside(node, part, name)
    if key:
        node = _entry(node, key.rstrip("]"), name)
    return path.relative_to(ROOT), getattr(node, "lineno", 1)


def names_in(text: str) -> list[str]:
    """Return the names in the `src` roles of a page."""
    return re.findall(r"\{src\}`([^`]+)`", text)


def _inside(node: ast.AST, part: str, name: str) -> ast.AST:
    for child in getattr(node, "body", ()):
        if getattr(child, "name", None) == part:
            return child
        targets = getattr(child, "targets", [getattr(child, "target", None)])
        if any(isinstance(t, ast.Name) and t.id == part for t in targets):
            return child
    raise ValueError(f"{name}: {part} is not there.")


def _entry(node: ast.AST, key: str, name: str) -> ast.AST:
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and child.value == key:
            return child
    raise ValueError(f"{name}: no entry {key!r}.")
