"""The bundled programs are found by their place, whatever the user's folders are named."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.support.paths import ROOT
from tpujob.submit import bundled
from tpujob.submit.archive import workloads_bundle

JOB = "name: a\ntpu: {type: v4-8}\nrun: {workload: %s, args: {steps: %s}}\n"
READ = """
import sys
from pathlib import Path
import tpujob
import workloads
from tpujob.errors import BadSpec
from tpujob.submit import job_file
from tpujob.submit.archive import workloads_bundle

print(tpujob.__file__)
for file in sys.argv[1:]:
    try:
        job_file.read(Path(file), "", cross_region=False)
        print("good")
    except BadSpec as error:
        print(error.message)
import workloads.own
print(workloads_bundle().sha256, workloads.__file__, workloads.own.VALUE)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, unpacked as an installer does it."""
    folder = tmp_path_factory.mktemp("wheel")
    [file] = WheelBuilder(str(ROOT)).build(directory=str(folder))
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A user's folder with a package `workloads`, and job files of bundled programs."""
    package = tmp_path / "workloads"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "own.py").write_text("VALUE = 'of the user'\n")
    for name in ("mlp", "lm", "vit", "tables", "numerics"):
        (tmp_path / f"{name}.yaml").write_text(JOB % (name, "twelve"))
    return tmp_path


def read(mine: Path, *path: Path) -> Iterator[str]:
    files = sorted(mine.glob("*.yaml"))
    done = subprocess.run(
        [sys.executable, "-c", READ, *map(str, files)], cwd=mine, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (mine, *path)))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return iter(done.stdout.splitlines())


def test_a_folder_named_workloads_changes_nothing(mine: Path) -> None:
    (mine / "good.yaml").write_text(JOB % ("mlp", 12))
    lines = read(mine)
    assert next(lines) == str(ROOT / "tpujob" / "__init__.py")
    assert next(lines) == "good"
    for name in ("lm", "mlp", "numerics", "tables", "vit"):
        assert next(lines).startswith(f"{mine / name}.yaml: run.args: "), name
    sha256, place, value = next(lines).split(maxsplit=2)
    assert sha256 == workloads_bundle().sha256
    assert (place, value) == (str(mine / "workloads" / "__init__.py"), "of the user")


def test_an_installed_package_has_the_same_programs_and_job_files(wheel: Path, mine: Path) -> None:
    top = {path.name for path in wheel.iterdir() if not path.name.endswith(".dist-info")}
    assert top == {"tpujob"}, "names that an installation takes from its users"
    assert (wheel / "tpujob" / "py.typed").exists()
    assert next(wheel.glob("tpujob/bundled/configs/quickstart.yaml"))
    lines = list(read(mine, wheel))
    assert lines[0] == str(wheel / "tpujob" / "__init__.py")
    assert len(lines) == 7
    assert lines[-1].split()[0] == workloads_bundle().sha256


def test_programs_are_imported_once_and_aside() -> None:
    import workloads.frame.config as ours

    config, mlp = bundled.load("frame.config", "mlp")
    assert bundled.load("frame.config", "mlp")[0] is config
    assert config is not ours
    assert sys.modules["workloads.frame.config"] is ours
    assert issubclass(mlp.MlpConfig, config.TrainConfig)


def test_the_metadata_is_whole_and_leads_nowhere_wrong(wheel: Path) -> None:
    [file] = wheel.glob("*.dist-info/METADATA")
    metadata = Parser().parsestr(file.read_text(encoding="utf-8"))
    assert {"Author", "Classifier", "Keywords", "License-Expression"} <= set(metadata.keys())
    readme = metadata.get_payload()
    assert isinstance(readme, str)
    assert "tpujob demo" in readme
    assert "](" not in readme, "a link to a file that a package index does not have"
