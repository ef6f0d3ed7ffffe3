"""What is imported is declared, and what is declared is used: in `pyproject.toml`, and in the locks made from it."""

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
OURS = {"tpujob", "tpujob_events", "workloads", "tests"}

#: files of extras; all others of tpujob import what a plain installation has, and of workloads what its own extra has
ROOMS = {
    "emulator": "tpujob/emulator",
    "s3": "tpujob/adapters/s3_objects.py",
    "pack": "tpujob/data",
    "parquet": "workloads/data/parquet.py",
}
#: modules that a host may have, which run there in the Python of the job
ON_HOSTS = {
    "tpujob/agent": {"jax", "numpy"},
    "tpujob/contract/importable": {"keras", "lightning", "transformers"},
    "workloads": {"torch"},
}
#: packages used by their name in text, and where
BY_NAME = {
    "gcsfs": "workloads/checkpoints/stored.py",
    "scikit-learn": "workloads/data/bundled.py",
    "array-record": "tpujob/data/records.py",
    "httptools": "tpujob/web",
}


def name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower()


def declared(extra: str = "") -> set[str]:
    lines = EXTRAS[extra] if extra else PROJECT["project"]["dependencies"]
    return {name_of(line) for line in lines}


def modules_of(package: str) -> set[str]:
    """The modules of an installed package, such as `google.auth`, without folders that several packages share."""
    found = (file for file in metadata.files(package) or () if file.suffix in {".py", ".so"})
    names = (".".join([*file.parts[:-1], file.name.partition(".")[0]]) for file in found)
    return {name.removesuffix(".__init__") for name in names}


def imported(path: Path) -> set[str]:
    """The modules of others that a file imports, and what it imports of them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.partition(".")[0] not in OURS | sys.stdlib_module_names}


def files(folder: str) -> list[Path]:
    path = ROOT / folder
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def undeclared(path: Path, packages: dict[str, set[str]]) -> set[str]:
    """The imports of a file that are in none of the packages."""
    theirs = set().union(*packages.values())
    folder = next((name for name in ON_HOSTS if path.is_relative_to(ROOT / name)), "")
    missing = {m for m in imported(path) if not {m, m.rpartition(".")[0]} & theirs}
    return {m for m in missing if m.partition(".")[0] not in ON_HOSTS.get(folder, set())}


@pytest.mark.parametrize("room", ["tpujob", *ROOMS, "workloads"])
def test_what_is_imported_is_declared(room: str) -> None:
    base = "workloads" if ROOMS.get(room, room).startswith("workloads") else ""
    names = declared(base) | (declared(room) if room in ROOMS else set())
    packages = {name: modules_of(name) for name in names}
    others = [path for name in ROOMS.values() for path in files(name)]
    paths = [p for p in files(ROOMS.get(room, room)) if room in ROOMS or p not in others]
    wrong = {str(p.relative_to(ROOT)): found for p in paths if (found := undeclared(p, packages))}
    assert not wrong, f"declare the packages of these modules in pyproject.toml: {wrong}"


@pytest.mark.parametrize("extra", ["", *sorted(EXTRAS.keys() - {"check"})])
def test_what_is_declared_is_imported(extra: str) -> None:
    folder = "workloads" if extra in ("workloads", "parquet") else "tpujob"
    used = set().union(*map(imported, files(folder)))
    idle: set[str] = set()
    for package in declared(extra) - BY_NAME.keys():
        modules = modules_of(package)
        if not any({name, name.rpartition(".")[0]} & modules for name in used):
            idle.add(package)
    assert not idle, f"no file of {folder} imports these: {sorted(idle)}"


@pytest.mark.parametrize(("package", "place"), BY_NAME.items())
def test_what_is_used_by_its_name_is_named_there(package: str, place: str) -> None:
    word = {"scikit-learn": "sklearn"}.get(package, package.replace("-", "_"))
    assert any(word in file.read_text(encoding="utf-8") for file in files(place)), place


def test_no_requirement_has_an_upper_limit() -> None:
    """It would keep tpujob out of an environment that needs more."""
    every = [*PROJECT["project"]["dependencies"], *(r for lines in EXTRAS.values() for r in lines)]
    assert [line for line in every if re.search(r"[<~]|==", line.partition(";")[0])] == []


def test_the_extras_are_named_by_their_use() -> None:
    assert set(EXTRAS) == {"emulator", "workloads", "s3", "pack", "parquet", "check"}


# The locks -----------------------------------------------------------------------------------------------------------


def locked(name: str) -> dict[str, str]:
    blocks = re.split(r"\n(?=\S)", (ROOT / name).read_text(encoding="utf-8"))
    return {re.split(r"[ ;=\\]", block)[0]: block.strip() for block in blocks if block.strip()}


def test_the_demo_installs_a_part_of_what_the_tests_ran_with() -> None:
    """libtpu is 700 MB, and cannot be installed beside a glibc before 2.31."""
    every, demo = locked("requirements.lock"), locked("requirements-demo.lock")
    different = {name for name, block in demo.items() if every.get(name) != block}
    assert not different, f"run `make lock`: {different}"
    needed = declared() | declared("emulator") | declared("workloads")
    assert needed <= demo.keys(), f"run `make lock`: {needed - demo.keys()}"
    assert not {"libtpu", "pytest", "playwright", "basedpyright", "uv"} & demo.keys()


def test_the_tests_install_everything() -> None:
    every = locked("requirements.lock")
    group = [line for line in PROJECT["dependency-groups"]["dev"] if isinstance(line, str)]
    needed = declared().union(*map(declared, EXTRAS)) | set(map(name_of, group))
    assert needed <= every.keys(), f"run `make lock`: {needed - every.keys()}"
    assert "libtpu" not in every
    assert locked("requirements-libtpu.lock").keys() == {"libtpu"}


@pytest.mark.parametrize("name", ["", "-demo", "-libtpu"])
def test_a_lock_names_no_index(name: str) -> None:
    """Every site has its own."""
    assert "//" not in (ROOT / f"requirements{name}.lock").read_text(encoding="utf-8")
