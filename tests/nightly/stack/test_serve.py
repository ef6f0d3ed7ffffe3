"""`tpujob serve`: several users of one machine, one backend, and the kernel's word on who is who."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import stranger
from tests.support.local_stack import PATIENCE, LocalStack
from tests.support.users import User, users

pytestmark = [pytest.mark.timeout(600), stranger.needed]


class Node:
    """A login node: root serves, bob and eve (accounts that every Linux has) are its users."""

    def __init__(self, folder: Path, bob: User, eve: User) -> None:
        self.admin = LocalStack(folder)
        self.bob, self.eve = bob, eve
        self.door = Path(tempfile.mkdtemp(prefix="door-", dir="/tmp"))
        self.door.chmod(0o755)
        self.socket = self.door / "backend.sock"
        self.log = folder / "serve.log"
        members = folder / "members.yaml"
        members.write_text(f"{bob.name}: submitter\n{eve.name}: submitter\n")
        words = ("serve", "--socket", str(self.socket), "--members", str(members))
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tpujob", *words],
                env=self.admin.env | {"HF_TOKEN": "of the admin's shell"},
                stdout=log,
                stderr=log,
            )

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()
        assert not self.socket.exists(), "the socket outlived its backend"
        self.admin.down()
        shutil.rmtree(self.door)


def until(holds: object, node: Node) -> None:
    ends = time.monotonic() + PATIENCE
    while not holds():  # type: ignore[operator]
        assert node.process.poll() is None, node.log.read_text()
        assert time.monotonic() < ends, node.log.read_text()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with users("nobody", "daemon") as (bob, eve):
        made = Node(tmp_path_factory.mktemp("node"), bob, eve)
        try:
            until(made.socket.exists, made)
            for user in (bob, eve):
                output = user("use", str(made.socket)).out
                assert "root runs that backend; there you are" in output
            yield made
        finally:
            made.close()


def create(user: User, name: str, command: str) -> str:
    spec = {"name": name, "tpu": {"type": "v4-8"}, "run": {"command": command}, "preflight": False}
    code = user.home / "code"
    script = (
        f"import os; os.makedirs({str(code)!r}, exist_ok=True)\n"
        f"open({str(code / 'word')!r}, 'w').write('from {user.name}')\n"
        f"open({str(user.home / 'job.yaml')!r}, 'w').write({json.dumps(spec | {'code': 'code'})!r})\n"
        "print('null')"
    )
    user.python(script)
    return user("create", "job.yaml", "--json").json["id"]


def test_two_users_run_jobs_and_neither_touches_what_is_the_others(node: Node) -> None:
    bob, eve = node.bob, node.eve
    mine, hers = create(bob, "train", "cat word"), create(eve, "train", "cat word; sleep 600")
    assert "succeeded" in bob("wait", mine).out
    assert "from nobody" in bob("logs", mine).out
    assert f"Job {mine}  train  succeeded" in bob("show", "train").out, "his own of that name"
    for words in (
        ("logs", mine),
        ("cancel", mine),
        ("clean", mine, "--yes"),
        ("ssh", mine),
        ("exec", mine, "--", "true"),
        ("forward", mine, "6006"),
        ("outputs", mine),
        ("cp", f"{mine}:checkpoints", "."),
        ("cp", "/etc/hostname", f"{mine}:outputs/"),
        ("diff", mine, hers),
    ):
        refused = eve(*words, code=77).err
        assert "daemon has the role submitter" in refused, words
    until(lambda: eve("show", hers, "--json").json["state"] == "running", node)
    eve("ssh", hers, "true")
    seen = {job["id"]: job for job in eve("list", "--all", "--json").json}
    assert set(seen) == {mine, hers}
    assert (seen[mine]["user"], seen[hers]["user"]) == ("nobody", "daemon")
    assert eve("members", code=77).err
    assert bob("delete", hers, "--yes", code=77).err
    assert node.admin.json("show", hers)["state"] != "cancelled", "root reads and stops all of them"
    node.admin.run("delete", hers, "--yes")
    assert "root" in {event.get("by") for event in node.admin.json("events", hers)}


def test_the_backend_has_no_secret_of_the_shell_that_started_it(node: Node) -> None:
    assert b"HF_TOKEN" not in Path(f"/proc/{node.process.pid}/environ").read_bytes()


def test_a_stranger_is_refused_and_told_whom_to_ask(node: Node) -> None:
    with users("bin") as (mallory,):
        refused = mallory("use", str(node.socket), code=77).err
        assert "bin is not a member" in refused
        assert "root runs this backend" in refused


def test_a_removed_member_is_refused_at_the_next_request(node: Node) -> None:
    assert "daemon" in node.eve("whoami").out
    node.admin.run("members", "remove", "daemon")
    assert "daemon is not a member" in node.eve("list", code=77).err
    node.admin.run("members", "add", "daemon", "submitter")
    assert "daemon" in node.eve("whoami").out


HALVES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
halves = [socket.socket(socket.AF_UNIX) for _ in range(1100)]
for each in halves:
    each.connect({socket!r})
    each.sendall(b"GET /v1/jobs HTTP/1.1\\r\\nHost: localhost\\r\\n")
print(json.dumps(len(halves)))
"""


def test_half_sent_requests_of_one_lock_nobody_else_out(node: Node) -> None:
    with contextlib.ExitStack() as ended:
        ended.callback(node.eve.python, "halves.clear(); print('null')")
        assert node.eve.python(HALVES.format(socket=str(node.socket))) == 1100
        assert node.bob("list", "--json").json is not None
        node.admin.run("whoami")
    fds = len(os.listdir(f"/proc/{node.process.pid}/fd"))
    assert fds < 400, f"the backend has {fds} files open"
