"""The structure of the house: no cycles of imports, names that mean one thing, one place for each method."""

import ast
import inspect
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tpujob.adapters.http.client import RemoteJobs
from tpujob.api import METHODS
from tpujob.domain.hardware.pricing import PRICINGS
from tpujob.service.jobs import Jobs

PRODUCT = ROOT / "tpujob"
#: public names of classes that two modules may share
SHARED = {"Done", "Job"}


@cache
def modules() -> dict[Path, tuple[str, ast.Module]]:
    """Each file of the product: its text, and that parsed."""
    texts = {path: path.read_text(encoding="utf-8") for path in PRODUCT.rglob("*.py")}
    return {path: (text, ast.parse(text)) for path, text in texts.items()}


def test_a_public_class_name_means_one_thing() -> None:
    classes = (
        node
        for _, tree in modules().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    )
    names = Counter(node.name for node in classes if not node.name.startswith("_"))
    twice = {name for name, count in names.items() if count > 1}
    assert twice <= SHARED, f"two modules define a class of this name: {sorted(twice - SHARED)}"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module, modules: set[str]) -> set[str]:
    """The modules that a file imports, inside functions and for type checkers included."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & modules
            if names - modules:
                found.add(node.module)
    return found & modules


def test_no_module_imports_itself_by_way_of_others_also_inside_functions() -> None:
    trees = {module_name(path): tree for path, (_, tree) in modules().items()}
    graph = {name: imported(tree, {*trees}) - {name} for name, tree in trees.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("a cycle of imports: " + " <- ".join(error.args[1]))


@pytest.mark.parametrize("side", [Jobs, RemoteJobs])
def test_each_method_of_the_table_is_written_in_the_service_and_in_the_client(side: type) -> None:
    """With the defaults of the table: types are compared by the type checker, which knows no defaults."""
    for name, row in METHODS.items():
        _, *parameters = inspect.signature(vars(side)[name]).parameters.values()
        assert [(p.name, p.kind, p.default) for p in parameters] == [
            (p.name, p.kind, p.default) for p in row.arguments
        ], name


def test_a_line_of_a_template_can_be_read() -> None:
    long = [
        f"{path.name}:{number}"
        for path in (PRODUCT / "web" / "templates").rglob("*.html")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 160
    ]
    assert not long, f"lines of templates with more than 160 characters: {long}"


def test_no_rule_compares_the_name_of_a_pricing() -> None:
    """Adapters, the emulator and importers translate names; all other code asks for a property of the row."""
    translators = [PRODUCT / room for room in ("adapters", "emulator", "submit")]
    compared = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, (_, tree) in modules().items()
        if not any(room in path.parents for room in translators)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for right in node.comparators
        if any(isinstance(n, ast.Constant) and n.value in PRICINGS for n in ast.walk(right))
    ]
    assert not compared, f"use `find_pricing` here: {compared}"
