"""Messages for hosts without Python, or with a Python that is too old."""

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.support.waiting import LONG
from tpujob.adapters.ssh import agent_calls
from tpujob.adapters.ssh.agent_calls import build_archive
from tpujob.adapters.ssh.connection import Output
from tpujob.agent.setup import devices
from tpujob.domain.model import Cause
from tpujob.errors import Refused


def test_a_host_without_python_has_its_own_message() -> None:
    output = Output(127, "sh: 1: exec: python3: not found\n")
    with pytest.raises(Refused, match="the host has no python3") as refusal:
        agent_calls._parse_answer(output)  # pyright: ignore[reportPrivateUsage]
    assert refusal.value.cause is Cause.SETUP


def python(version: str) -> str:
    """Return a Python of this machine. Skips the test if there is none."""
    installed = Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")
    path = next(map(str, installed), None) or shutil.which(f"python{version}")
    # a command of that name may only say that no such Python is chosen
    if path is None or subprocess.run([path, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"NOT TESTED: there is no Python {version} here")
    return path


def test_the_python_of_a_program_may_be_older_than_that_of_the_agent(tmp_path: Path) -> None:
    words = [python("3.7"), devices.__file__, "facts", str(tmp_path / "facts")]
    subprocess.run(words, check=True, timeout=LONG)
    assert json.loads((tmp_path / "facts").read_text())["versions"]["python"].startswith("3.7.")


@pytest.mark.parametrize("version", ["3.6", "3.7"])
def test_a_python_that_is_too_old_is_named(tmp_path: Path, version: str) -> None:
    path = python(version)
    agent = tmp_path / "agent"
    agent.write_bytes(build_archive())
    result = subprocess.run([path, agent, "status"], capture_output=True, text=True, timeout=LONG)
    answer = json.loads(result.stdout)
    assert (answer["ok"], answer["cause"]) == (False, "SETUP")
    assert answer["error"].startswith(f"the host has Python {version}, and the agent needs 3.8; ")


def test_every_module_of_the_agent_can_be_imported_with_its_oldest_python(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_bytes(build_archive())
    importable = "tpujob/contract/importable/"
    names = [name[:-3] for name in zipfile.ZipFile(agent).namelist() if name != "__main__.py"]
    modules = [
        name.replace("/__init__", "").replace("/", ".")
        for name in names
        if not name.startswith(importable)
    ]
    paths = f"sys.path[:0] = [{str(agent)!r}, {f'{agent}/{importable}'!r}]"
    script = f"import sys; {paths}; import tpujob_events, tpujob_events.orbax, {', '.join(modules)}"
    subprocess.run([python("3.8"), "-c", script], check=True, timeout=LONG)
