"""Environments on a host that has only what a TPU VM has: an old Python without pip, and no uv."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from tests.flow.agent.test_environments import PLAIN, hashed, notes, run, wanted
from tests.support import mirror
from tests.support.agent_host import NO_LIBTPU, Host
from tests.support.paths import ROOT
from tpujob.agent.setup import uv
from tpujob.agent.setup.installers import check_host_python
from tpujob.emulator.farm import image

LOCK = ROOT / "workloads" / "requirements.lock"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PATH of a bare host."""
    return image.bare_path(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a job that name the archive of uv."""
    return {"UV_DOWNLOAD_URL": mirror.pack_uv(tmp_path_factory.mktemp("uv"))}


@pytest.fixture
def bare(host: Host, path: str) -> Host:
    host.env["PATH"] = path
    return host


# The host's own Python -----------------------------------------------------------------------------------------------


def test_the_checkout_has_the_locked_packages_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every local job would make an environment; `make lock` writes both files."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("PATH", str(mirror.own_uv().parent), prepend=":")
    assert check_host_python([("lock", LOCK.read_text())], "3.11") == ""


def test_the_lock_has_the_whole_extra_and_what_a_tpu_needs() -> None:
    project = tomllib.loads((LOCK.parents[1] / "pyproject.toml").read_text())["project"]
    requirements = project["optional-dependencies"]["workloads"]
    direct = {re.split(r"[^a-z-]", line)[0] for line in requirements} | {"libtpu"}
    locked = set(re.findall(r"^([a-z0-9-]+)==", LOCK.read_text(), re.MULTILINE))
    assert direct <= locked, f"run `make lock`: {direct - locked}"
    assert "//" not in LOCK.read_text(), "no address, as every site has its own index"


def test_a_host_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    own = metadata.version("jax")
    monkeypatch.setenv("PATH", str(mirror.own_uv().parent), prepend=":")
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    monkeypatch.setenv("PYTHONPATH", NO_LIBTPU)

    def lacks(text: str, python: str = "3.11") -> str:
        return re.sub(r"Python 3\.\d+", "Python", check_host_python([("lock", text)], python))

    assert lacks(f"jax=={own} \\\n    --hash=sha256:0\n") == ""
    assert lacks("jax==0.1") == f"this host's Python has jax {own}"
    assert lacks("jax==0.1\nflax==0.1") == f"this host's Python has jax {own} (2 packages differ)"
    assert lacks(f"jax=={own}\nlibtpu==0.1") == "this host's Python has no libtpu"
    assert lacks(f"jax=={own}", "3.99") == "this host has Python"
    monkeypatch.setenv("PATH", path)
    assert check_host_python([("lock", "jax==0.1")], "3.11").startswith("this host")
    monkeypatch.setenv("PATH", "/nowhere")
    assert check_host_python([("lock", "jax==0.1")], "3.11") == "this host has no python3"


def test_nothing_is_built_where_the_host_has_it_all(host: Host) -> None:
    text = f"pytest=={metadata.version('pytest')}\n"
    plan = wanted(host, "uv", text)
    plan["environment"].update(python="3.11", unless_installed=True)
    report = run(host, 1, "echo in ${VIRTUAL_ENV:-none}", **plan)
    assert report["exit_code"] == 0
    assert host.bucket.log()[-1] == "in none"
    assert notes(host) == ["this host's own Python has all that requirements.txt names"]


# How uv gets there ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_uv_comes_from_its_archive_without_tpu(bare: Host, archive: dict[str, str]) -> None:
    bare.env["JAX_PLATFORMS"] = "cpu"
    plan = wanted(bare, "uv", hashed() + "libtpu==0.0.1 --hash=sha256:" + 64 * "0" + "\n")
    plan["environment"]["unless_installed"] = True
    report = run(bare, env=archive, **plan)
    assert report["exit_code"] == 0, bare.bucket.log()
    lines = notes(bare)
    assert lines[0].startswith("this host's Python 3.1"), lines
    assert lines[0].endswith("so one is made of requirements.txt")
    assert lines[1] == f"uv is from {archive['UV_DOWNLOAD_URL'].partition('#')[0]}/{uv_archive()}"
    assert (bare.home / ".tpujob" / "tools" / "uv" / "bin" / "uv").exists()
    run(bare, 2, "command -v uv", env={}, **wanted(bare, "uv", PLAIN))
    assert bare.bucket.log(2)[-1].endswith("/.tpujob/tools/uv/bin/uv"), "kept for later attempts"


def uv_archive() -> str:
    return f"uv-{mirror.platform.machine()}-unknown-linux-gnu.tar.gz"


@pytest.mark.slow
def test_an_environment_by_pip_has_pip(bare: Host, archive: dict[str, str]) -> None:
    plan = wanted(bare, "pip", hashed(), setup="pip --version")
    report = run(bare, env={**archive, **mirror.index()}, **plan)
    log = bare.bucket.log()
    assert report["exit_code"] == 0, log
    assert any(line.startswith("42 ") for line in log)
    assert any(line.startswith("[setup] pip ") for line in log), "set-up may call pip"


@pytest.mark.parametrize("url", ["file:///none", "https://127.0.0.1:9/with a space", "ftp:"])
def test_a_host_that_cannot_get_uv_says_what_to_do(bare: Host, url: str) -> None:
    report = run(bare, 1, "echo never", env={"UV_DOWNLOAD_URL": url}, **wanted(bare, "uv"))
    assert report["cause"] == "SETUP"
    assert report["error"].startswith(
        "uv is not on this host and cannot be installed: its archive cannot be fetched ("
    )
    assert "install uv in a start-up script" in report["error"]
    assert "never" not in bare.bucket.log()


def test_a_host_that_does_not_reach_its_package_index_names_the_cure(bare: Host) -> None:
    env = {"UV_DOWNLOAD_URL": "file:///none", "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    problem = "this host does not reach 127.0.0.1 (Connection refused): a host without an external address needs"
    report = run(bare, 1, "echo never", env=env, **wanted(bare, "uv"))
    assert f"UV_DOWNLOAD_URL in run.env; {problem} Cloud NAT (`EGRESS=nat" in report["error"]
    assert any(line.startswith(f"[tpujob] set-up: {problem}") for line in bare.bucket.log())
    report = run(bare, 2, "echo never", env=env, setup="[ -e no ] && pip install x; exit 4")
    assert report["error"].startswith("set-up ended with exit code 4")
    assert problem in report["error"]
    report = run(bare, 3, "echo never", env=env, setup="echo no package; exit 4")
    assert problem not in report["error"], "only an installation asks the index"


def test_an_archive_of_uv_with_another_hash_is_refused(bare: Host, tmp_path: Path) -> None:
    """uv runs as the job, with its secrets. Expected is the pinned hash, or the one that the URL names."""
    (tmp_path / uv_archive()).write_bytes(b"something else")
    for attempt, url, expected in (
        (1, tmp_path.as_uri(), uv.ARCHIVES[mirror.platform.machine()]),
        (2, f"{tmp_path.as_uri()}#sha256={64 * 'a'}", 64 * "a"),
    ):
        env = {"UV_DOWNLOAD_URL": url}
        report = run(bare, attempt, "echo never", env=env, **wanted(bare, "uv"))
        assert f", and {expected} is expected" in report["error"]
