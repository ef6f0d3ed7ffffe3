"""The shape of the house: its size, no cycles of imports, names that mean one thing, one place for each method."""

import ast
import inspect
import re
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.stage import Stage
from tpujob.api import METHODS

PRODUCT = ROOT / "tpujob"
#: At most. What adds to a figure takes as much away elsewhere; a change that lowers one lowers it here.
MOST = {
    "lines": 73_190,
    "modules": 487,
    "packages": 52,
    "packages under four modules": 1,
    "class names used twice": 2,
    "private words": 30,
    "docstrings that open with a question": 0,
    "local names without a noun": 39,
    "parameters of a constructor": 9,
    "lines of tests": 79_082,
}
#: words that a sentence uses in place of the one who acts
PRIVATE = re.compile(r"\b(said|told|nobody|somebody|whoever|anew)\b", re.IGNORECASE)
#: how a docstring begins that names no thing and has no verb
QUESTION = re.compile(
    r"(What|How|Who|Whose|Whom|Where|When|Which|Why|Of|With|As|For|Its?|They|That|Those|These)\b"
)
#: variables and parameters that do not say what they hold
VAGUE = re.compile(
    r"one|each|found|said|told|known|met|kept|given|asked|wanted|sought|it|them|those|who|what|that|more|most|many|so"
    r"|here|there|such"
)


@cache
def modules() -> dict[Path, tuple[str, ast.Module]]:
    """Each file of the product: its text, and that parsed."""
    texts = {path: path.read_text(encoding="utf-8") for path in PRODUCT.rglob("*.py")}
    return {path: (text, ast.parse(text)) for path, text in texts.items()}


def questions(tree: ast.Module) -> int:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    texts = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return sum(QUESTION.match(text) is not None for text in texts if text)


def vague_names(tree: ast.Module) -> int:
    """Return how many local names are vague, each counted once in a function."""

    def names(function: ast.AST) -> set[str]:
        stored = (
            n.id
            for n in ast.walk(function)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        )
        return {*stored, *(n.arg for n in ast.walk(function) if isinstance(n, ast.arg))}

    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return sum(len([*filter(VAGUE.fullmatch, names(function))]) for function in functions)


def figures() -> dict[str, int]:
    files = {path: text for path, (text, _) in modules().items()}
    trees = [tree for _, tree in modules().values()]
    tests = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    classes = [
        node
        for _, tree in modules().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    ]
    names = Counter(node.name for node in classes if not node.name.startswith("_"))
    makers = [f for node in classes for f in node.body if getattr(f, "name", "") == "__init__"]
    folders = Counter(path.parent for path in files)
    outside = [
        folder for folder in folders if PRODUCT / "adapters" not in [folder, *folder.parents]
    ]
    return {
        "lines": sum(text.count("\n") for text in files.values()),
        "modules": len(files),
        "packages": len(folders),
        "packages under four modules": sum(folders[folder] < 5 for folder in outside),
        "class names used twice": sum(count > 1 for count in names.values()),
        "private words": sum(len(PRIVATE.findall(text)) for text in files.values()),
        "docstrings that open with a question": sum(questions(tree) for tree in trees),
        "local names without a noun": sum(vague_names(tree) for tree in trees),
        "parameters of a constructor": max(
            len(f.args.args) + len(f.args.kwonlyargs) - 1
            for f in makers
            if isinstance(f, ast.FunctionDef)
        ),
        "lines of tests": sum(text.count("\n") for text in tests),
    }


def test_no_figure_of_the_house_grows() -> None:
    grown = {
        name: f"{value:,}, at most {MOST[name]:,}"
        for name, value in figures().items()
        if value > MOST[name]
    }
    assert not grown, grown


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


def test_each_method_of_the_table_has_one_place_in_the_service(tmp_path: Path) -> None:
    """`Jobs`, or the first of its parts that has it, with the parameters that the table says."""
    service = Stage(tmp_path).api
    for name, row in METHODS.items():
        signature = inspect.signature(getattr(service, name))
        told = [*signature.parameters.values()]
        assert [(p.name, p.kind, p.default) for p in told] == [
            (p.name, p.kind, p.default) for p in row.arguments
        ], name
