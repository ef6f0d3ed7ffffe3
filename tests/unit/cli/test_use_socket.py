"""`tpujob use PATH`: a backend that one user runs on this machine for all of its users."""

import os
import re
from pathlib import Path

import pytest

from tests.support.commands import Tpujob, withdraw
from tests.support.scripted import ScriptedJobs
from tpujob.config import context, settings, shared_socket


@pytest.fixture
def path(url: str, tpujob_state: Path, api: ScriptedJobs) -> Path:
    """The socket of a backend, which is not that of the state folder."""
    del api  # what is asked there
    withdraw(tpujob_state, "backend")
    return Path(url.removeprefix("unix:"))


@pytest.mark.parametrize("begins", ["", "unix:"])
def test_the_backend_at_a_socket_is_used_later(tpujob: Tpujob, path: Path, begins: str) -> None:
    output = tpujob("use", f"{begins}{path}").out
    me = shared_socket.login_of(os.geteuid())
    name = re.sub("[_-]+", "-", path.parent.name).strip("-")
    assert f"{me} runs that backend; there you are ada, admin." in output
    assert f"{name}: the backend at unix:{path}" in output
    assert settings.load(tpujob.state).context == name
    assert tpujob("list", "--json").json != []
    assert "it is not started here" in tpujob("up", code=2).err
    assert "local" in tpujob("use", "local").out


def test_backends_of_others_get_no_request(tpujob: Tpujob, path: Path, api: ScriptedJobs) -> None:
    tpujob("use", str(path), "--name", "node")
    file = context.path_of(settings.load(tpujob.state), "node")
    uid = os.geteuid()
    file.write_text(file.read_text().replace(f"backend_uid: {uid}", f"backend_uid: {uid + 1}"))
    api.calls.clear()
    refused = tpujob("list", code=69).err
    assert f"belongs to the uid {uid}, not to {uid + 1}: nothing was sent" in refused
    assert api.calls == []


def test_a_socket_that_anybody_could_have_put_there_is_not_used(tpujob: Tpujob, path: Path) -> None:
    mode = path.parent.stat().st_mode
    path.parent.chmod(0o777)
    try:
        refused = tpujob("use", str(path), code=2).err
    finally:
        path.parent.chmod(mode)
    assert "may be anybody's" in refused
    assert "No such file" in tpujob("use", "/nowhere/backend.sock", code=3).err
    assert context.names(settings.load(tpujob.state)) == []


def test_a_context_with_a_socket_says_whose_it_is(tpujob: Tpujob, path: Path) -> None:
    folder = tpujob.state / "contexts"
    folder.mkdir(exist_ok=True)
    (folder / "node.yaml").write_text(f"name: node\nbackend: unix:{path}\n")
    assert "needs backend_uid: `tpujob use PATH`" in tpujob("use", "node", code=65).err
