"""Imports between the modules of hgld."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import hgld

ROOT = Path(hgld.__file__).parent


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def public_names() -> dict[str, str]:
    """Return the module of every name that a package imports on first use."""
    modules = {}
    for stub in ROOT.rglob("__init__.pyi"):
        package = module_name(stub.with_suffix(".py"))
        for module, name in re.findall(r"from \.([\w.]+) import \w+ as (\w+)", stub.read_text()):
            modules[f"{package}.{name}"] = f"{package}.{module}"
    return modules


def imported_names(path: Path) -> set[str]:
    """Return all names that a file imports from hgld, also in functions and for type checks only."""
    names = set()
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.ImportFrom) and statement.module is not None:
            names |= {f"{statement.module}.{alias.name}" for alias in statement.names}
        elif isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
    return {name for name in names if name.startswith("hgld")}


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = {module_name(path): path for path in ROOT.rglob("*.py")}
    lazy = public_names()
    graph = {}
    for module, path in modules.items():
        imported = set()
        for name in imported_names(path):
            name = lazy.get(name, name)
            imported.add(name if name in modules else name.rpartition(".")[0])
        graph[module] = imported - {module}
    assert len(graph) > 200
    TopologicalSorter(graph).prepare()  # raises a CycleError that names the circle
