"""`tpujob ssh`: exit codes, streams of any size, a real terminal, and no contact with a host that is not pinned."""

import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.hosts.strange_server import StrangeServer
from tests.support.farm_rig import FarmProcess, alive, slice_at, until
from tests.support.ports import reserved
from tpujob.adapters.ssh import (
    HostCommand,
    SshHosts,
    new_private_key,
    open_session,
    public_line,
)
from tpujob.adapters.ssh import session as ssh_session
from tpujob.adapters.ssh.keys import LIFETIME, SKEW
from tpujob.api import HostAccess
from tpujob.domain.actions import HostPlan
from tpujob.errors import BadRequest, HostKeyChanged, TpujobError, Transient

AGENT = Path(__file__).parent / "fake_agent.py"

#: a process that opens a session on its own streams
CLIENT = """
import json, sys
from tpujob.adapters.ssh import open_session
sys.exit(open_session(*json.loads(sys.argv[1])))
"""


class Rig:
    """One host that has been contacted once."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, list[SshHosts]()
        self.farm = FarmProcess(folder)
        self.hosts = SshHosts(folder / "keys", port=self.farm.ssh_port, agent=AGENT)
        self.key = new_private_key()
        self.access = self.slice("tj-000001-1")

    def slice(self, name: str) -> HostAccess:
        key = f"{self.hosts.public_key(slice_at(name))}\ntpujob:{self.farm.public_key}"
        (address,) = self.farm.slice(name, key=key)
        self.host = slice_at(name, address)
        self.bring_up()
        return self.let_in(self.hosts)

    def bring_up(self) -> None:
        """Start an attempt, and stop it at once."""
        plan = {"job": "000001", "attempt": 1, "command": ["sleep", "1000"]}
        self.hosts.start(self.host, [HostPlan(0, plan)], timeout=30)
        self.hosts.stop(self.host, grace=1, timeout=30)

    def asked_at(self, seconds: float, agent: Path | None = AGENT) -> SshHosts:
        """Return the same backend with a clock so far ahead of the host's. `agent`: None: the real agent."""
        port, keys = self.farm.ssh_port, self._folder / "keys"
        made = SshHosts(keys, port=port, agent=agent, now=lambda: time.time() + seconds)
        self._made.append(made)
        return made

    def let_in(self, hosts: SshHosts, key: str = "") -> HostAccess:
        return hosts.access(self.host, 0, public_line(key or self.key), "ada for job 000001")

    def client(self, command: list[str] | None, **streams: object) -> subprocess.Popen[bytes]:
        text = json.dumps([self.access, self.key, command])
        return subprocess.Popen([sys.executable, "-c", CLIENT, text], **streams)  # pyright: ignore

    def close(self) -> None:
        for made in (self.hosts, *self._made):
            made.close()
        self.farm.stop()


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("farm"))
    yield rig
    rig.close()


#: forwards ports until it is interrupted, and prints what happens
FORWARDER = """
import json, sys
from tpujob.adapters.ssh import forward_ports
access, key, forwards = json.loads(sys.argv[1])
told = lambda *words: print(*words, flush=True)
try:
    forward_ports(access, key, forwards, connected=lambda: told("open"), refused=lambda text: told("refused", text))
except KeyboardInterrupt:
    told("ended")
"""


def run(access: HostAccess, key: str, command: list[str]) -> int:
    """Run a command in a session without input and output, and return its exit code."""
    with open(os.devnull, "r+b", buffering=0) as null:
        fd = null.fileno()
        return open_session(access, key, command, stdin=fd, stdout=fd, stderr=fd)


def test_a_command_keeps_its_streams_its_arguments_and_its_exit_code(rig: Rig):
    program = (
        "import sys; print(sys.argv[1:]); print(sys.stdin.read(), file=sys.stderr); sys.exit(7)"
    )
    hostile = ["$(touch canary)", "a b", "'", ""]
    child = rig.client(
        ["python3", "-c", program, *hostile],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = child.communicate(b"hello", timeout=60)
    assert (child.returncode, out.decode().strip()) == (7, str(hostile))
    assert err == b"hello\n"


def test_a_command_that_a_signal_ends_gives_255(rig: Rig):
    command = ["sh", "-c", "kill -9 $$"]
    assert run(rig.access, rig.key, command) == 255


def test_a_shell_without_a_terminal_reads_its_commands(rig: Rig):
    child = rig.client(None, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, _ = child.communicate(b"test -t 0 || echo no terminal; exit 4\n", timeout=60)
    assert (child.returncode, out) == (4, b"no terminal\n")


def test_a_reader_that_goes_away_ends_the_session(rig: Rig):
    child = rig.client(
        ["yes"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.read(2) == b"y\n"
    child.stdout.close()
    assert child.wait(60) == 141
    child.stderr.close()


def test_the_lines_of_a_command_are_read_from_both_streams(rig: Rig):
    lines: list[tuple[bytes, bool]] = []
    script = "echo out $1; echo err >&2; read word; printf 'no end'; exit 3"
    command = HostCommand(rig.access, rig.key, ["sh", "-c", script, "sh", "it's $HOME"], ["gcloud"])
    assert command.run(lambda text, is_error: lines.append((text, is_error))) == 3
    command.close()
    assert sorted(lines) == [(b"err", True), (b"no end", False), (b"out it's $HOME", False)]


def test_a_command_that_is_closed_ends_at_once(rig: Rig):
    command = HostCommand(rig.access, rig.key, ["sleep", "600"], ["gcloud"])
    threading.Timer(0.5, command.close).start()
    assert command.run(lambda *_: None) != 0


class Forwarder:
    """A process that forwards a port of this machine."""

    def __init__(self, rig: Rig, local: int, remote: int) -> None:
        self.port = local
        text = json.dumps([rig.access, rig.key, [f"127.0.0.1:{self.port}:localhost:{remote}"]])
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(
            [sys.executable, "-c", FORWARDER, text], stdout=pipe, stderr=pipe, text=True
        )

    def line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def interrupt(self) -> str:
        self.child.send_signal(signal.SIGINT)
        return self.child.communicate(timeout=60)[0].strip()


def test_a_port_of_this_machine_leads_to_one_of_the_host_until_ctrl_c(rig: Rig):
    with reserved() as local, socket.create_server(("127.0.0.1", 0)) as program:
        forwarder = Forwarder(rig, local, program.getsockname()[1])
        assert forwarder.line() == "open"
        with socket.create_connection(("127.0.0.1", forwarder.port), 60) as browser:
            accepted, _ = program.accept()
            with accepted:
                browser.sendall(b"hello")
                assert accepted.recv(5) == b"hello"
                accepted.sendall(b"there")
                assert browser.recv(5) == b"there"
        assert forwarder.interrupt() == "ended"
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", forwarder.port), 5)


def test_a_port_at_which_nothing_listens_yet_is_named(rig: Rig):
    with reserved() as local, reserved() as remote:
        forwarder = Forwarder(rig, local, remote)
        assert forwarder.line() == "open"
        with socket.create_connection(("127.0.0.1", local), 60) as browser:
            assert browser.recv(1) == b""
        assert "open failed" in forwarder.line()
        assert forwarder.interrupt() == "ended"


def test_a_port_of_this_machine_that_is_in_use_is_refused(rig: Rig):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _, err = Forwarder(rig, port, 6006).child.communicate(timeout=60)
        assert f"port {port} of this machine is in use" in err
        forwards = [f"127.0.0.1:{port}:localhost:6006"]
        with pytest.raises(BadRequest, match="is in use"):
            open_session(rig.access, rig.key, ["true"], forwards=forwards)


def test_a_person_gets_a_terminal_of_the_size_of_the_window(rig: Rig):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 101, 0, 0))
    child = rig.client(None, stdin=theirs, stdout=theirs, stderr=theirs)
    try:
        os.write(ours, b"stty size; tty; exit 3\n")
        assert child.wait(60) == 3
        shown = os.read(ours, 65536).decode(errors="replace")
        assert "31 101" in shown
        assert "/dev/pts/" in shown
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("address", "inside"), [("10.164.0.9", True), ("34.90.1.2", False), ("127.0.0.1", False)]
)
def test_a_caller_outside_the_network_of_a_host_gets_a_hint(rig: Rig, address: str, inside: bool):
    access: HostAccess = {**rig.access, "address": address}
    error = ssh_session._error_in_log(
        access, f"ssh: connect to host {address} port 22: Connection timed out\n"
    )
    assert error.message.endswith(
        f"({address}): connect to host {address} port 22: Connection timed out"
    )
    assert ("on a machine there" in error.hint) == inside


def test_a_host_that_is_not_pinned_or_has_changed_gets_nothing(rig: Rig):
    with StrangeServer() as server:
        at_server: HostAccess = {**rig.access, "address": "127.0.0.1", "port": server.port}
        with pytest.raises(TpujobError, match="no host key is pinned for \\[127"):
            run(at_server, rig.key, ["true"])
        (line,) = rig.access["host_keys"]
        stranger: HostAccess = {
            **at_server,
            "host_keys": [f"[127.0.0.1]:{server.port} {line.split(' ', 1)[1]}"],
        }
        with pytest.raises(HostKeyChanged) as caught:
            run(stranger, rig.key, ["true"])
        assert "tpujob cancel --release" in caught.value.hint, "it does not say what to do"
    assert server.connections == 2
    assert server.seen == []
    with pytest.raises(TpujobError, match="no host key is pinned for host 0"):
        run({**at_server, "host_keys": []}, rig.key, ["true"])


# Certificates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "why",
    [
        "it has expired",
        "it is not valid yet",
        "it is of another key",
        "it is for another login",
        "another slice signed it",
        "there is none",
    ],
)
def test_no_certificate_lets_in_when(rig: Rig, why: str):
    at = {"it has expired": -LIFETIME - 5, "it is not valid yet": SKEW + 60}.get(why, 0.0)
    hosts = rig.asked_at(at)
    key = new_private_key() if "another key" in why else rig.key
    slice = slice_at("tj-000002-1", "127.0.0.1") if "another slice" in why else rig.host
    hosts.public_key(slice)
    certificate = hosts.access(slice, 0, public_line(rig.key), "eve")["certificate"]
    user = "root" if "another login" in why else "tpujob"
    access: HostAccess = {
        **rig.access,
        "user": user,
        "certificate": "" if "none" in why else certificate,
    }
    with pytest.raises(Transient, match="does not accept the certificate") as refused:
        run(access, key, ["true"])
    assert "clock" in refused.value.hint


def test_a_session_outlives_its_certificate_and_clocks_may_differ_a_little(rig: Rig):
    for at in (-LIFETIME + 30, SKEW - 30):
        access = rig.let_in(rig.asked_at(at))
        assert run(access, rig.key, ["true"]) == 0
    soon = rig.let_in(rig.asked_at(-LIFETIME + 2))
    lasts = ["sh", "-c", "while [ $(date +%s) -le $1 ]; do :; done; exit 9", "sh"]
    over = str(int(time.time()) + 3)
    assert run(soon, rig.key, [*lasts, over]) == 9


def test_a_certificate_says_whose_it_is_and_allows_a_terminal_and_ports_alone(
    rig: Rig, tmp_path: Path
):
    file = tmp_path / "key-cert.pub"
    file.write_text(rig.access["certificate"])
    shown = subprocess.run(
        ["ssh-keygen", "-L", "-f", str(file)], capture_output=True, text=True, check=True
    ).stdout
    assert 'Key ID: "ada for job 000001"' in shown
    named = r"Principals: \n\s+tpujob\n\s+epoch-0\n\s+Critical Options: \(none\)"
    assert re.search(named, shown)
    assert re.search(r"Extensions: \n\s+permit-port-forwarding\n\s+permit-pty\n?$", shown)


@pytest.mark.parametrize("key", ["", "ssh-ed25519 AAAA", "ssh-rsa AAAA", "ssh-ed25519 \u00e4"])
def test_an_invalid_key_gets_no_certificate(rig: Rig, key: str):
    with pytest.raises(BadRequest, match="not a public key of type ssh-ed25519") as refused:
        rig.hosts.access(rig.host, 0, key, "ada")
    assert "ssh-keygen" in refused.value.hint


@pytest.mark.slow
def test_a_plan_adds_the_authority_once_and_leaves_other_keys_alone(rig: Rig):
    (address,) = (endpoint.address for endpoint in rig.host.endpoints)
    rig.farm.run(address, "printf 'ssh-ed25519 AAAA mine' > ~/.ssh/authorized_keys")  # no newline
    for _ in range(2):
        rig.bring_up()
    _, output, _ = rig.farm.run(address, "cat ~/.ssh/authorized_keys; stat -c %a ~/.ssh ~/.ssh/*")
    authority = f"cert-authority {rig.hosts.public_key(rig.host)}"
    assert output.decode().split("\n")[:3] == ["ssh-ed25519 AAAA mine", authority, "700"]
    rig.farm.run(address, "rm ~/.ssh/authorized_keys; mkdir ~/.ssh/authorized_keys")
    rig.bring_up()  # a file that cannot be written stops no program
    rig.farm.run(address, "rmdir ~/.ssh/authorized_keys")
    rig.bring_up()


@pytest.mark.slow
def test_nothing_of_an_owner_is_left_after_a_hand_over_to_another(rig: Rig):
    """The real agent wipes a host: its owner's files, key, open session and program are gone, and a certificate that is
    still valid is refused, also when the next job has started."""
    bare = slice_at("tj-000003-1")
    both = f"{rig.hosts.public_key(bare)}\ntpujob:{rig.farm.public_key}"
    slice = slice_at(bare.name, *rig.farm.slice(bare.name, key=both))
    (address,) = (endpoint.address for endpoint in slice.endpoints)
    plan = {"job": "000001", "attempt": 1, "command": ["sleep", "1000"]}
    rig.hosts.start(slice, [HostPlan(0, plan)], timeout=30)
    access = rig.hosts.access(slice, 0, public_line(rig.key), "ada for job 000001")
    leave = (
        "echo 'ssh-ed25519 AAAA mine' >> ~/.ssh/authorized_keys; mkdir -p ~/.config/gcloud;"
        "echo canary | tee ~/.config/gcloud/key ~/.netrc $TMPDIR/x"
    )
    assert run(access, rig.key, ["sh", "-c", leave]) == 0
    text = json.dumps([access, rig.key, ["sh", "-c", "touch ~/up; sleep 1000"]])
    null = subprocess.DEVNULL
    client = [sys.executable, "-c", CLIENT, text]
    session = subprocess.Popen(client, stdin=null, stdout=null, stderr=null)
    until(lambda: rig.farm.run(address, "test -e ~/up")[0] == 0, "the session")
    (pid,) = re.findall(rb'"pid": (\d+)', rig.farm.run(address, "cat ~/.tpujob/state.json")[1])

    real = rig.asked_at(0, agent=None)
    real.stop(slice, grace=1, timeout=60)
    real.wipe(slice, others=True, timeout=60)
    assert session.wait(60) != 0
    assert not alive(int(pid))
    output = rig.farm.run(address, "cd; grep -rl canary . $TMPDIR; cat .ssh/*; ls -A")[1].decode()
    assert output.split("\n")[:-1] == [rig.hosts.public_key(slice), ".ssh", ".tpujob"]

    heirs = replace(slice, epoch=1)
    for _ in range(2):
        with pytest.raises(Transient, match="does not accept the certificate"):
            run(access, rig.key, ["true"])
        rig.hosts.start(heirs, [HostPlan(0, {**plan, "job": "000002"})], timeout=30)
    theirs = rig.hosts.access(heirs, 0, public_line(rig.key), "bob for job 000002")
    assert run(theirs, rig.key, ["true"]) == 0
