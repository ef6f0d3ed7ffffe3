"""The environment that a job names: built once on a host, reused, kept in the bucket, never used half-built.

Real `uv`, with a package in the bundle itself, so that no index is needed.
"""

import hashlib
import io
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_host import Host, until
from tests.support.bundles import archive
from tpujob.agent.base import Failure
from tpujob.agent.setup import installers

NAME = "tinypkg-1.0-py3-none-any.whl"
ASK = "python3 -c 'import sys, tinypkg; print(tinypkg.NUMBER, sys.prefix)'; echo in $VIRTUAL_ENV"


def wheel() -> bytes:
    """A package of one line, as its own wheel: the same bytes every time."""
    files = {
        "tinypkg.py": "NUMBER = 42\n",
        "tinypkg-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tinypkg\nVersion: 1.0\n",
        "tinypkg-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "tinypkg-1.0.dist-info/entry_points.txt": "[console_scripts]\ntiny = tinypkg:main\n",
    }
    files["tinypkg-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text)
    return packed.getvalue()


def bundle(host: Host, **files: str) -> list[str]:
    """A bundle of these files, `_` for `.` in their names, and the wheel."""
    content = {"wheels/" + NAME: wheel(), **{n.replace("_", "."): t for n, t in files.items()}}
    return [host.bucket.bundle(archive(*content.items()))]


def hashed() -> str:
    digest = hashlib.sha256(wheel()).hexdigest()
    return f"--no-index\n--find-links wheels\ntinypkg==1.0 --hash=sha256:{digest}\n"


PLAIN = "--no-index\n--find-links wheels\ntinypkg\n"


def wanted(host: Host, kind: str = "pip", text: str = PLAIN, **fields: Any) -> dict[str, Any]:
    """Return the plan's order for an environment from such a file."""
    order = {"kind": kind, "file": "requirements.txt", "python": None}
    return {
        "bundles": bundle(host, requirements_txt=text),
        "environment": order,
        "shared": "gs://shed/cache",
        **fields,
    }


def notes(host: Host, attempt: int = 1) -> list[str]:
    """Return the log's lines on environments."""
    mark = "[tpujob] environment: "
    return [line[len(mark) :] for line in host.bucket.log(attempt) if line.startswith(mark)]


def envs(host: Host) -> list[Path]:
    return [p for p in (host.home / ".tpujob" / "envs").iterdir() if p.is_dir()]


def run(host: Host, attempt: int = 1, command: str = ASK, **plan: Any) -> dict[str, Any]:
    """From start to the last report; a build takes its time on a busy machine."""
    host.start(command, attempt=attempt, **plan)
    return host.ended(attempt, 240)


def forget(host: Host, *folders: Path) -> None:
    """Delete the folders, as on a new machine, once the agent has ended: until then it removes files beside them."""
    until(lambda: not host.processes(), "the end of the agent", 120)
    for folder in folders:
        shutil.rmtree(folder)


def quick_uv(host: Host, then: str = "") -> Host:
    """A stand-in for uv: it makes real environments without packages, and prints its arguments."""
    make = '[ "$1" = venv ] && exec python3 -I -m venv --without-pip "$2"'
    host.tools({"uv": f"#!/bin/sh\necho uv $*\n{then}\n{make}\nexit 0\n"})
    return host


# Built, found, fetched -----------------------------------------------------------------------------------------------


def test_uv_builds_what_the_file_says(host: Host) -> None:
    report = run(host, **wanted(host, "uv", hashed()))
    assert report["exit_code"] == 0, host.bucket.log()
    (folder,) = envs(host)
    assert f"42 {folder}/prefix" in host.bucket.log()
    assert (host.home / ".tpujob" / "cache" / "uv").is_dir()


def test_an_environment_is_built_once_and_reused(host: Host) -> None:
    plan = wanted(quick_uv(host), "uv")
    assert run(host, command="echo in $VIRTUAL_ENV; command -v python3", **plan)["exit_code"] == 0
    (folder,) = envs(host)
    made, *program = (line for line in host.bucket.log() if "tinypkg" not in line)
    assert made == f"[env] uv venv {folder}/prefix --no-project --python python3"
    assert program[-2:] == [f"in {folder}/prefix", f"{folder}/prefix/bin/python3"]
    plain, built = notes(host)
    assert plain == "requirements.txt has no hashes: another build may get others"
    assert built.startswith(f"{folder.name} was built with uv in ")
    run(host, 2, **plan)
    assert notes(host, 2) == [f"{folder.name} was made on this host before"]
    assert not [line for line in host.bucket.log(2) if line.startswith("[env]")]


def test_partial_and_broken_environments_are_rebuilt(host: Host) -> None:
    plan = wanted(quick_uv(host), "uv", shared="gs://shed/none")
    run(host, 1, "true", **plan)
    (folder,) = envs(host)
    (folder / "done.json").unlink()  # as if the agent had died in the middle
    (folder / "prefix" / "pyvenv.cfg").unlink()
    run(host, 2, "python3 -c 'import sys; print(sys.prefix)'", **plan)
    assert host.bucket.log(2)[-1] == f"{folder}/prefix"
    python = folder / "prefix" / "bin" / "python"
    python.unlink()
    python.symlink_to("/no/such/python")  # as if another image had another Python
    run(host, 3, "python3 -c 'import sys; print(sys.prefix)'", **plan)
    assert notes(host, 3)[0] == "its Python does not run any more: it is made again"
    assert host.bucket.log(3)[-1] == f"{folder}/prefix"


def built_elsewhere(host: Host) -> tuple[dict[str, Any], Path, dict[str, Any]]:
    """A plan, the folder of its environment, which is not on this machine, and the object in the bucket that has it."""
    plan = wanted(quick_uv(host), "uv")
    run(host, 1, "true", **plan)
    (folder,) = envs(host)
    forget(host, folder)
    (stored,) = host.bucket.list("cache/env/")
    return plan, folder, stored


def test_the_next_slice_fetches_what_host_0_has_built(host: Host) -> None:
    plan, folder, stored = built_elsewhere(host)
    run(host, 2, "echo in $VIRTUAL_ENV", **plan)
    (note,) = notes(host, 2)
    assert note.startswith(f"{folder.name} was fetched from the bucket in ")
    assert host.bucket.log(2)[-1] == f"in {folder}/prefix"
    shutil.rmtree(folder)
    host.bucket.put(stored["name"], host.bucket.read(stored["name"])[:3000])  # cut off
    run(host, 3, "echo in $VIRTUAL_ENV", **plan)
    assert notes(host, 3)[-1].startswith(f"{folder.name} was built with uv in ")


def test_a_planted_environment_is_neither_unpacked_nor_run(host: Host) -> None:
    """Otherwise another user of the bucket could run code on every host, or write outside of the folder."""
    plan, folder, stored = built_elsewhere(host)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("../../../.ssh/authorized_keys", "prefix/bin/python", "done.json"):
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o755, 2
            tar.addfile(entry, io.BytesIO(b"{}"))
    host.bucket.put(stored["name"], packed.getvalue())
    run(host, 2, "echo in $VIRTUAL_ENV", **plan)
    assert notes(host, 2)[-1].startswith(f"{folder.name} was built with uv in ")
    assert host.bucket.log(2)[-1] == f"in {folder}/prefix"
    assert not (host.home / ".ssh").exists()
    seals = until(lambda: host.bucket.list("cache/env/")[0].get("metadata"), "another, sealed")
    assert set(seals) == {"sha256", "mac"}


# What goes wrong -----------------------------------------------------------------------------------------------------


def test_a_step_that_fails_is_named_and_the_program_is_not_started(host: Host) -> None:
    quick_uv(host, then='[ "$1" = pip ] && exit 3')
    report = run(host, 1, "echo never", **wanted(host, "uv", hashed()))
    assert (report["exit_code"], report["cause"]) == (None, "SETUP")
    error = "the environment cannot be made: `uv pip install --python ...` ended with exit code 3"
    assert report["error"].startswith(error)
    log = host.bucket.log()
    assert "never" not in log
    assert any("--require-hashes -r requirements.txt" in line for line in log)
    assert not list(host.home.glob(".tpujob/envs/*/done.json"))


def test_a_stop_ends_a_build(host: Host) -> None:
    quick_uv(host, then="exec sleep 1000")
    host.start("echo never", **wanted(host, "uv"))
    until(lambda: any("uv venv" in line for line in host.bucket.log()), "the build's first line")
    host.agent("stop", "--grace", 1)
    assert host.ended()["exit_code"] == -15
    assert "never" not in host.bucket.log()
    assert not list(host.home.glob(".tpujob/envs/*/done.json"))


@pytest.mark.parametrize(
    ("kind", "changes", "error"),
    [
        ("pip", {"file": "other.txt"}, "the environment's other.txt is not in the bundle"),
        ("pip", {"python": "3.99"}, "python3.99 is not on this host; `env: {uv: "),
        ("conda", {}, "neither micromamba, mamba nor conda is on this host"),
    ],
)
def test_a_tool_that_a_host_lacks_is_named(
    host: Host, kind: str, changes: dict[str, Any], error: str
) -> None:
    plan = wanted(host, kind)
    plan["environment"].update(changes)
    report = run(host, 1, "echo never", **plan)
    assert report["cause"] == "SETUP"
    assert error in report["error"]


def test_the_versions_that_are_reported_are_those_of_the_environment(host: Host) -> None:
    """Not those of the host's own Python, which has JAX."""
    check = {"slice": "s", "chips": 4, "hosts": 1, "coordinator": "", "seconds": 40}
    check["required"] = False
    run(host, 1, "true", **wanted(quick_uv(host), "uv", preflight=check))
    assert set(host.bucket.report()["versions"]) == {"python"}
    run(host, 2, "true", preflight=check)
    assert {"python", "jax", "jaxlib"} <= set(host.bucket.report(2)["versions"])


# What it is made from ------------------------------------------------------------------------------------------------


def test_the_key_of_an_environment_depends_only_on_what_is_installed(tmp_path: Path) -> None:
    def key(packages: str = "optax\n", python: str = "3.11") -> str:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        (folder / "r.txt").write_text("jax==0.6\n-r more.txt\n")
        (folder / "more.txt").write_text(packages)
        texts, local = installers.read_sources("uv", "r.txt", [str(folder)])
        return installers.key_of({"kind": "uv"}, python, texts, [str(folder)] if local else [])

    assert key() == key(), "other code, the same environment"
    assert key() != key(python="3.12")
    assert key() != key("optax==1\n"), "an included file counts"


@pytest.mark.parametrize(
    ("line", "local"),
    [
        ("jax[tpu]==0.6", False),
        ("-f https://storage.googleapis.com/jax-releases/libtpu_releases.html", False),
        ("numpy @ https://host/numpy.whl", False),
        ("git+https://github.com/google/maxtext", False),
        ("# ./not this", False),
        ("-e .", True),
        ("./mine", True),
        ("mine @ file:///x", True),
        ("wheels/a-1-py3-none-any.whl", True),
        ("--find-links wheels", True),
    ],
)
def test_requirements_with_other_files_are_known(tmp_path: Path, line: str, local: bool) -> None:
    (tmp_path / "r.txt").write_text(line + "\n")
    assert installers.read_sources("pip", "r.txt", [str(tmp_path)])[1] is local


def test_nothing_outside_the_bundle_is_read(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("-r ../../etc/passwd\n")
    with pytest.raises(Failure, match="is outside the bundle"):
        installers.read_sources("pip", "r.txt", [str(tmp_path)])
