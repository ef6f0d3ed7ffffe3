"""The door of a unix socket: the kernel says who is there, and no request can say otherwise."""

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from tests.support import stranger
from tests.support.callers import ADA, TokenDoor, caller
from tests.support.http import ask
from tests.support.scripted import (
    LIMITLESS,
    TOKEN,
    ScriptedJobs,
    listening,
    scripted_app,
    unix_socket,
)
from tests.support.waiting import LONG
from tpujob.domain.access import Principal
from tpujob.errors import Forbidden
from tpujob.lib import unix_sockets
from tpujob.web.security.authenticator import PeerAuthenticator
from tpujob.web.security.connections import Connections, config_of
from tpujob.web.serving import SocketAuthenticators, SocketListener

#: Asks who it is, and says that it is root on this machine, in every way that a header can.
CLAIMS = {"Peer": "0", "X-Forwarded-For": "127.0.0.1", "Authorization": f"Bearer {TOKEN}"}
ASK = """
other = socket.socket(socket.AF_UNIX)
other.connect(given)
other.sendall(b"GET /v1/whoami HTTP/1.1\\r\\nHost: localhost\\r\\nPeer: 0\\r\\nConnection: close\\r\\n\\r\\n")
said = b""
while piece := other.recv(65536):
    said += piece
print(json.dumps(said.decode()))
"""


def test_a_port_knows_no_peer_whatever_the_request_claims() -> None:
    api = ScriptedJobs()
    with listening(scripted_app(api, PeerAuthenticator(ADA))) as url:
        status, _, body = ask(url, "GET", "/v1/jobs", CLAIMS)
    assert (status, body["error"]["type"]) == (401, "Unauthorized")
    assert api.calls == []


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """Return the path of a socket in a folder whose modes let all users connect."""
    with tempfile.TemporaryDirectory(prefix="tpujob-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "s"


@stranger.needed
def test_another_user_is_refused_although_the_mode_lets_them_connect(open_to_all: Path) -> None:
    api = ScriptedJobs()
    with listening(scripted_app(api), place=unix_sockets.listen(open_to_all, 0o666)):
        answer = stranger.run(ASK, str(open_to_all))
    assert answer.startswith("HTTP/1.1 403 ")
    assert "works for ada alone" in answer
    assert api.calls == []


@stranger.needed
@pytest.mark.parametrize("member", [True, False])
def test_another_user_has_the_name_and_role_of_the_list(open_to_all: Path, member: bool) -> None:
    lookups: list[tuple[str, str]] = []

    def recognise(id: str, name: str) -> Principal:
        lookups.append((id, name))
        if not member:
            raise Forbidden(f"{name} is not a member", hint="An admin adds members.")
        return caller("bob")

    with listening(
        scripted_app(ScriptedJobs(), PeerAuthenticator(ADA, recognise)),
        place=unix_sockets.listen(open_to_all, 0o666),
    ):
        answer = stranger.run(ASK, str(open_to_all))
    assert lookups == [(f"uid:{stranger.UID}:nobody", "nobody")]
    assert answer.startswith("HTTP/1.1 200 " if member else "HTTP/1.1 403 ")
    assert member or "An admin adds members. ada runs this backend." in answer


def test_each_listening_socket_has_a_door_of_its_own() -> None:
    """The Unix socket asks for no token; the port does."""
    with unix_socket() as (place, path), socket.create_server(("127.0.0.1", 0)) as port:
        listeners = [
            SocketListener(place, PeerAuthenticator(ADA)),
            SocketListener(port, TokenDoor(TOKEN, ADA)),
        ]
        app = scripted_app(ScriptedJobs(), SocketAuthenticators(listeners), limits=LIMITLESS)
        server = uvicorn.Server(config_of(app, Connections(most=20)))
        thread = threading.Thread(target=server.run, args=([place, port],), daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{port.getsockname()[1]}"
            assert ask(path, "GET", "/v1/jobs")[0] == 200
            assert ask(url, "GET", "/v1/jobs")[0] == 401
            assert ask(url, "GET", "/v1/jobs", {"Authorization": f"Bearer {TOKEN}"})[0] == 200
        finally:
            server.should_exit = True
            thread.join(LONG)
