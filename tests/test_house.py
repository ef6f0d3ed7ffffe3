"""The shape of the house: no module imports itself by way of others, and each method of the table has one place."""

import ast
import inspect
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.stage import Stage
from tpujob.api import METHODS

ROOT = Path(__file__).parent.parent


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, modules: set[str]) -> set[str]:
    """The modules that a file imports, inside functions and for type checkers included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & modules
            if names - modules:
                found.add(node.module)
    return found & modules


def test_no_module_imports_itself_by_way_of_others_also_inside_functions() -> None:
    files = {module_name(path): path for path in (ROOT / "tpujob").rglob("*.py")}
    graph = {
        name: imported(path.read_text(encoding="utf-8"), {*files}) - {name}
        for name, path in files.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("a cycle of imports: " + " <- ".join(error.args[1]))


def test_each_method_of_the_table_has_one_place_in_the_service(tmp_path: Path) -> None:
    """`Jobs`, or the first of its parts that has it, with the parameters that the table says."""
    service = Stage(tmp_path).api
    for name, row in METHODS.items():
        signature = inspect.signature(getattr(service, name))
        told = [*signature.parameters.values()]
        assert [(p.name, p.kind, p.default) for p in told] == [
            (p.name, p.kind, p.default) for p in row.arguments
        ], name
