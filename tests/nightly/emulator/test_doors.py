"""Another user of the machine gets nothing from the processes of the emulator."""

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import stranger
from tests.support.farm_rig import EmulatorProcess, FarmProcess

#: Connects to each port and socket, begins to speak gRPC, HTTP with and without what a metadata server asks for, and
#: says what came back.
KNOCK = r"""
def answer(family, where, said):
    with socket.socket(family) as door:
        door.settimeout(10)
        try:
            door.connect(where)
            door.sendall(said)
            return door.recv(4096).decode("latin-1")
        except OSError as error:
            return type(error).__name__

grpc = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
get = "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nMetadata-Flavor: Google\r\n\r\n"
said = [grpc, *((get % path).encode() for path in given["paths"])]
doors = [(socket.AF_INET, tuple(port)) for port in given["ports"]]
doors += [(socket.AF_UNIX, path) for path in given["sockets"]]
print(json.dumps([[str(where), answer(family, where, one)] for family, where in doors for one in said]))
"""
PATHS = (
    "/v2/projects/p/locations/us-central2-b/nodes",
    "/storage/v1/b?project=p",
    "/computeMetadata/v1/?recursive=true",
    "/status",
    "/slices",
)


class Emulator:
    """The two processes of an emulator, with one slice that has a host."""

    def __init__(self, folder: Path) -> None:
        self.farm = FarmProcess(folder)
        self.emulator = EmulatorProcess(folder)
        self.process, self.ready = self.emulator.process, self.emulator.ready
        self.address = self.farm.slice("tj-door")[0]

    def ports(self) -> list[tuple[str, int]]:
        """Return every listening TCP port; gRPC by itself listens on IPv6, too."""
        return [
            *_listening(self.process.pid, "tcp"),
            *_listening(self.process.pid, "tcp6"),
            *_listening(self.farm.process.pid, "tcp"),
        ]

    def stop(self) -> None:
        assert self.emulator.stop() == self.farm.stop() == 0


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    folder = tmp_path_factory.mktemp("doors")
    for above in (folder, *folder.parents[:2]):
        above.chmod(0o755)  # only the emulator's own folders keep other users out
    made = Emulator(folder)
    yield made
    made.stop()


@stranger.needed
def test_another_user_gets_nothing_at_any_port_or_socket(emulator: Emulator) -> None:
    ports = [port for port in emulator.ports() if port[1] != emulator.farm.ssh_port]
    assert len(ports) == 4, (
        f"the REST face, the storage, its proxy, a metadata server, and not {ports}"
    )
    sockets = [emulator.ready["tpu"].removeprefix("unix:"), emulator.ready["control"]]
    sockets.append(emulator.farm.ready["control"])
    answers = stranger.run(KNOCK, {"ports": ports, "sockets": sockets, "paths": PATHS})
    assert len(answers) == (len(ports) + len(sockets)) * (len(PATHS) + 1)
    for where, answer in answers:
        if where in sockets:
            assert answer == "PermissionError", f"{where} let a stranger in: {answer!r}"
        else:
            refused = answer.startswith("HTTP/1.1 403 ") or answer == "ConnectionResetError"
            assert refused, f"{where} answered a stranger: {answer!r}"


def test_its_own_user_is_served_at_every_port(emulator: Emulator) -> None:
    rest, storage = emulator.ready["tpu_rest"], emulator.ready["storage"]
    for url in (f"{rest}{PATHS[0]}", f"{storage}{PATHS[1]}"):
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.status == 200
    look = 'curl -sf -H Metadata-Flavor:Google "$GCE_METADATA_HOST/computeMetadata/v1/instance/id"'
    assert emulator.farm.run(emulator.address, look)[0] == 0


def _listening(pid: int, family: str) -> list[tuple[str, int]]:
    """Return the listening addresses of a process, from the kernel's table and the process's descriptors."""
    sockets: set[str] = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        sockets.add(os.readlink(link))
    addresses: list[tuple[str, int]] = []
    for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
            address, port = words[1].split(":")
            octets = reversed(bytes.fromhex(address[-8:]))
            place = "127.0.0.1" if family == "tcp6" else ".".join(map(str, octets))
            addresses.append((place, int(port, 16)))
    return addresses
