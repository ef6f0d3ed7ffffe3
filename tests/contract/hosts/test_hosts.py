"""The port Hosts, over Fabric and SSH, on real emulated hosts."""

import contextlib
import json
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.hosts.strange_server import StrangeServer
from tests.support.farm_rig import FarmProcess, alive, slice_at, until
from tpujob.adapters.ssh import SshHosts
from tpujob.adapters.ssh.agent_calls import plan_name
from tpujob.domain.actions import HostPlan
from tpujob.domain.model import Slice
from tpujob.errors import HostKeyChanged, NotFound, Refused, TpujobError, Transient

AGENT = Path(__file__).parent / "fake_agent.py"
SLEEP = ["sleep", "1000"]


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarmProcess]:
    process = FarmProcess(tmp_path_factory.mktemp("farm"))
    yield process
    process.stop()


class Rig:
    """Slices of the farm, and the adapter under test."""

    numbers = count(1)

    def __init__(self, farm: FarmProcess, keys: Path) -> None:
        self.farm = farm
        self.hosts = SshHosts(keys, port=farm.ssh_port, agent=AGENT)

    def slice(self, hosts: int = 2) -> Slice:
        """Return a slice whose hosts accept the keys of adapter and rig."""
        bare = slice_at(f"tj-000001-{next(self.numbers)}")
        both = f"{self.hosts.public_key(bare)}\ntpujob:{self.farm.public_key}"
        return slice_at(bare.name, *self.farm.slice(bare.name, hosts, key=both))

    def look(self, slice: Slice, host: int, command: str) -> str:
        return self.farm.run(slice.endpoints[host].address, command)[1].decode()

    def program(self, slice: Slice, host: int) -> int:
        """Return the pid of the program there; 0: no program runs."""
        text = self.look(slice, host, "cat ~/.tpujob/state.json 2> /dev/null")
        pid = json.loads(text)["pid"] if text else 0
        return pid if alive(pid) else 0

    def touched(self, slice: Slice, host: int) -> bool:
        """Return whether the agent ever got a start."""
        return "start" in self.look(slice, host, "cat ~/.tpujob/calls 2> /dev/null")


@pytest.fixture
def rig(farm: FarmProcess, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(farm, tmp_path / "keys")
    yield rig
    rig.hosts.close()


def test_every_host_is_started_once_and_stopped(rig: Rig):
    slice = rig.slice(hosts=4)
    plans = [_plan(host) for host in range(4)]
    rig.hosts.start(slice, plans, timeout=60)
    pids = [rig.program(slice, host) for host in range(4)]
    assert all(pids), "not every host runs its program"
    rig.hosts.start(slice, plans, timeout=60)
    assert [rig.program(slice, host) for host in range(4)] == pids, "the second start was no repeat"
    rig.hosts.stop(slice, grace=5, timeout=60)
    assert not any(alive(pid) for pid in pids)
    rig.hosts.stop(slice, grace=5, timeout=60)


def test_files_on_a_host_are_readable_by_their_owner_only(rig: Rig):
    slice = rig.slice(hosts=1)
    rig.hosts.start(slice, [_plan(0)], timeout=60)
    listing = rig.look(slice, 0, "stat -c '%a %n' ~/.tpujob ~/.tpujob/plan* ~/.tpujob/agent*")
    modes = {Path(n).name: m for m, n in (line.split() for line in listing.splitlines())}
    assert modes[".tpujob"] == "700"
    assert modes["plan-000001-1.json"] == "600"
    assert len(modes) == 3, f"something was left lying about: {modes}"


def test_secrets_are_told_to_the_agent_and_lie_in_no_file_of_the_host(rig: Rig):
    slice = rig.slice(hosts=2)
    canary = 'canary "4711"\nä $(touch x)'
    private = {"key": "canary 1", "cache_key": "canary 2", "secrets": {"HF_TOKEN": canary}}
    plans = [HostPlan(host, _plan(host).document, **private) for host in range(2)]
    rig.hosts.start(slice, plans, timeout=60)
    for host in range(2):
        assert json.loads(rig.look(slice, host, "cat ~/.tpujob/told")) == private
        assert rig.look(slice, host, "rm ~/.tpujob/told; grep -rl canary ~ || true") == ""
    rig.hosts.stop(slice, grace=5, timeout=60)


def test_nothing_starts_anywhere_while_one_host_is_down(rig: Rig):
    slice = rig.slice(hosts=3)
    dead = slice_at(slice.name, *[e.address for e in slice.endpoints[:2]], "127.0.0.1")
    with pytest.raises(Transient, match=r"host 2 \(127\.0\.0\.1\): connection refused") as caught:
        rig.hosts.start(dead, [_plan(host) for host in range(3)], timeout=60)
    assert "host 0" not in caught.value.message
    assert not any(rig.touched(slice, host) for host in (0, 1))


def test_a_host_without_an_address_is_waited_for(rig: Rig):
    slice = rig.slice(hosts=1)
    with pytest.raises(Transient, match=r"host 1 of .* has no external address yet"):
        rig.hosts.start(slice, [_plan(0), _plan(1)], timeout=60)
    assert not rig.touched(slice, 0)


def test_a_refusal_by_one_host_stops_what_the_others_began(rig: Rig):
    slice = rig.slice(hosts=2)
    refuse = {"error": "no disk\x1b[31m space", "cause": "BAD_HOST"}
    with pytest.raises(Refused, match=r"host 1 \(127\..*\): no disk space$") as caught:
        rig.hosts.start(slice, [_plan(0), _plan(1, refuse=refuse)], timeout=60)
    assert caught.value.cause == "BAD_HOST"
    assert rig.touched(slice, 0)
    assert not rig.program(slice, 0), "host 0 was left running alone"


def test_a_refusal_leaves_earlier_programs_running(rig: Rig):
    slice = rig.slice(hosts=2)
    rig.hosts.start(slice, [_plan(0), _plan(1)], timeout=60)
    refuse = {"error": "not now", "cause": "nonsense"}
    with pytest.raises(Refused) as caught:
        rig.hosts.start(slice, [_plan(0), _plan(1, refuse=refuse)], timeout=60)
    assert caught.value.cause == "SETUP", "a cause that is not on the list got through"
    assert rig.program(slice, 0)


def test_an_agent_that_cannot_run_is_a_refusal(rig: Rig, tmp_path: Path):
    slice = rig.slice(hosts=1)
    broken = tmp_path / "agent.py"
    broken.write_text("import no_such_module")
    hosts = SshHosts(tmp_path / "keys", port=rig.farm.ssh_port, agent=broken)
    with pytest.raises(Refused, match=r"gave no answer .exit code 1.: .*no_such_module") as caught:
        hosts.start(slice, [_plan(0)], timeout=60)
    assert caught.value.cause == "SETUP"
    with pytest.raises(Transient, match="gave no answer"):  # a stop is never refused, only not done
        hosts.stop(slice, grace=1, timeout=60)
    hosts.close()


def test_a_host_that_does_not_answer_is_cut_off_at_the_deadline(rig: Rig):
    slice = rig.slice(hosts=2)
    with pytest.raises(Transient, match=r"host 1 \(127.*\): no answer in time"):
        rig.hosts.start(slice, [_plan(0), _plan(1, hang=True)], timeout=15)
    assert rig.touched(slice, 1)
    assert not rig.program(slice, 0), "host 0 was left running alone"


def test_an_agent_that_prints_without_end_is_given_up(rig: Rig):
    slice = rig.slice(hosts=1)
    with pytest.raises(Transient, match="printed more than 16 MiB"):
        rig.hosts.start(slice, [_plan(0, flood=True)], timeout=60)


def test_a_host_that_is_switched_off_in_the_middle_is_no_contact(rig: Rig):
    slice = rig.slice(hosts=2)
    errors: list[TpujobError] = []

    def start() -> None:
        try:
            rig.hosts.start(slice, [_plan(0), _plan(1, hang=True)], timeout=60)
        except TpujobError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    until(lambda: rig.touched(slice, 1), "the agent of host 1 is at work")
    rig.farm.call("POST", f"/slices/{slice.name}/preempt", {"notice_s": 0})
    thread.join()
    (error,) = errors
    assert isinstance(error, Transient)
    assert "host 1" in error.message


def test_a_host_knows_that_its_agent_has_died(rig: Rig):
    slice = rig.slice(hosts=3)
    rig.hosts.start(slice, [_plan(0), _plan(1), _plan(2)], timeout=60)

    def without_agent(attempt: int = 1) -> frozenset[int]:
        of = {"job": "000001", "attempt": attempt}
        return rig.hosts.without_agent(slice, {0, 1}, timeout=30, **of)

    assert without_agent() == set()
    for host in (1, 2):
        rig.look(slice, host, f"kill -9 -{rig.program(slice, host)}")
    until(lambda: not rig.program(slice, 1), "the end of what was killed")
    assert without_agent() == {1}, "host 2 was not asked"
    assert without_agent(attempt=2) == set(), "it knows nothing of that"
    rig.look(slice, 1, "rm -r ~/.tpujob")
    assert without_agent() == set(), "it has no agent that could say so"


def test_stop_reaches_the_rest_when_one_host_is_gone(rig: Rig):
    slice = rig.slice(hosts=2)
    rig.hosts.start(slice, [_plan(0), _plan(1)], timeout=60)
    pid = rig.program(slice, 0)
    half = slice_at(slice.name, slice.endpoints[0].address, "127.0.0.1")
    with pytest.raises(Transient, match="host 1"):
        rig.hosts.stop(half, grace=1, timeout=30)
    assert not alive(pid)


# Listening -----------------------------------------------------------------------------------------------------------


def _listener(rig: Rig, slice: Slice) -> int:
    """Return the pid of the agent that sends; 0: no agent sends."""
    pid = int(rig.look(slice, 0, "cat ~/.tpujob/listened 2> /dev/null") or 0)
    return pid if alive(pid) else 0


def test_messages_of_an_agent_arrive_at_once_until_the_stream_is_closed(rig: Rig):
    slice = rig.slice(hosts=1)
    with contextlib.closing(rig.hosts.listen(slice, 0, job="42", attempt=1, timeout=30)) as stream:
        messages = list(islice(stream, 5))
        assert [(x["job"], x["number"]) for x in messages] == [("42", n) for n in range(5)]
        assert _listener(rig, slice)
    until(lambda: not _listener(rig, slice), "the agent's end")
    ended = rig.hosts.listen(slice, 0, job="42", attempt=3, timeout=30)
    assert [x["number"] for x in ended] == [0, 1, 2], "it ends when the agent does"
    ended.close()


def test_a_silent_stream_is_closed_from_another_thread_at_once(rig: Rig):
    slice = rig.slice(hosts=1)
    stream = rig.hosts.listen(slice, 0, job="42", attempt=2, timeout=30)
    messages = iter(stream)
    assert next(messages)["number"] == 0
    threading.Timer(0.2, stream.close).start()
    with contextlib.suppress(Transient):
        assert list(messages) == []
    stream.close()


def test_a_stream_from_where_nothing_can_be_followed_is_no_contact(rig: Rig):
    slice = rig.slice(hosts=2)
    with (
        contextlib.closing(rig.hosts.listen(slice, 1, job="42", attempt=9, timeout=30)) as stream,
        pytest.raises(Transient, match="nothing can be followed here"),
    ):
        list(stream)
    with contextlib.closing(rig.hosts.listen(slice, 0, job="42", attempt=2, timeout=30)) as stream:
        messages = iter(stream)
        next(messages)
        rig.farm.call("POST", f"/slices/{slice.name}/preempt", {"notice_s": 0})
        with contextlib.suppress(Transient):
            assert list(messages) == [], "the host was switched off"
    until(lambda: 0 not in rig.hosts.alive(slice, timeout=30), "the host refuses connections")
    with pytest.raises(Transient):
        rig.hosts.listen(slice, 0, job="42", attempt=1, timeout=10)


# Alive ---------------------------------------------------------------------------------------------------------------


def test_hosts_that_run_a_command_count_as_alive(rig: Rig):
    slice = rig.slice(hosts=3)
    assert rig.hosts.alive(slice, timeout=30) == {0, 1, 2}
    first, _, third = (endpoint.address for endpoint in slice.endpoints)
    half = slice_at(slice.name, first, "127.0.0.1", third, "")
    assert rig.hosts.alive(half, timeout=30) == {0, 2}, "host 1 refuses, host 3 has no address"
    assert rig.hosts.alive(slice_at("tj-000009-1"), timeout=30) == frozenset()


def test_a_host_that_takes_connections_and_is_silent_is_not_alive(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0), backlog=8) as silent:
        hosts = SshHosts(tmp_path, port=silent.getsockname()[1], agent=AGENT)
        hosts.public_key(slice := slice_at("tj-000009-1", "127.0.0.1"))
        assert hosts.alive(slice, timeout=2) == frozenset()
        hosts.close()


def test_a_host_that_refuses_every_command_is_not_alive(tmp_path: Path):
    with StrangeServer() as server:
        hosts = SshHosts(tmp_path, port=server.port, agent=AGENT)
        hosts.public_key(slice := slice_at("tj-000009-1", "127.0.0.1"))
        assert hosts.alive(slice, timeout=20) == frozenset()
        assert "session" in server.seen, "it was not asked to carry out a command"
    hosts.close()


# Host keys -----------------------------------------------------------------------------------------------------------


def test_the_first_contact_pins_the_key_and_nothing_is_sent_to_another(tmp_path: Path):
    slice = slice_at("tj-000009-1", "127.0.0.1")
    with StrangeServer() as server:
        hosts = SshHosts(tmp_path, port=server.port, agent=AGENT)
        hosts.public_key(slice)
        with pytest.raises(TpujobError):
            hosts.start(slice, [_plan(0)], timeout=20)
        port = server.port
    assert server.seen, "the first contact did not get as far as the login"
    (line,) = (tmp_path / slice.name / "known_hosts").read_text().splitlines()
    assert line.startswith(f"[127.0.0.1]:{port} ssh-ed25519 ")
    with StrangeServer(port) as impostor:
        for call in (
            lambda: hosts.start(slice, [_plan(0)], timeout=20),
            lambda: hosts.stop(slice, grace=1, timeout=20),
        ):
            with pytest.raises(HostKeyChanged, match=r"host 0 \(127\.0\.0\.1\)"):
                call()
    assert impostor.connections >= 2, "there was no connection to the server"
    assert impostor.seen == [], f"the server got {impostor.seen}"
    hosts.close()


def test_the_key_pair_is_made_once_and_kept_to_ourselves(tmp_path: Path):
    hosts = SshHosts(tmp_path / "a" / "keys", agent=AGENT)
    slice = slice_at("tj-000003-1", "127.0.0.1")
    with ThreadPoolExecutor(8) as pool:
        lines = set(pool.map(lambda _: hosts.public_key(slice), range(16)))
    assert len(lines) == 1, "two callers made two keys"
    public = lines.pop()
    assert public.startswith("ssh-ed25519 AAAA")
    folder = tmp_path / "a" / "keys" / slice.name
    assert [p.name for p in folder.iterdir()] == ["id_ed25519"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "id_ed25519").stat().st_mode) == 0o600
    hosts.forget(slice)
    hosts.forget(slice)
    assert not folder.exists()
    late: dict[str, Callable[[], object]] = {
        "listen": lambda: hosts.listen(slice, 0, job="3", attempt=1, timeout=5),
        "start": lambda: hosts.start(slice, [_plan(0)], timeout=5),
        "stop": lambda: hosts.stop(slice, grace=1, timeout=5),
        "access": lambda: hosts.access(slice, 0, public, "ada"),
    }
    for name, call in late.items():
        with pytest.raises(NotFound, match="the key of tj-000003-1 is gone"):
            call()
        assert not folder.exists(), f"{name} has made a key of a slice that is gone"
    assert hosts.alive(slice, timeout=5) == frozenset()
    assert hosts.kept() == []
    with pytest.raises(ValueError, match="not the name of a slice"):
        hosts.forget(slice_at("../keys"))
    hosts.close()


# Hostile text --------------------------------------------------------------------------------------------------------

_HOSTILE = [
    "$(touch canary)",
    "`touch canary`",
    "'; touch canary; '",
    '"; touch canary; "',
    "\n touch canary\n",
    "-rf",
    "..",
    "%s",
    "é\u202e",
]
_TEXT = st.lists(st.sampled_from(_HOSTILE), min_size=1, max_size=3).map("".join)


def test_hostile_text_in_a_plan_arrives_as_it_is_and_is_never_run(rig: Rig):
    slice = rig.slice(hosts=1)

    @settings(max_examples=8, suppress_health_check=list(HealthCheck))
    @given(job=_TEXT, value=_TEXT, argument=_TEXT)
    def check(job: str, value: str, argument: str) -> None:
        rig.hosts.stop(slice, grace=1, timeout=30)
        show = "import os, sys; print(ascii((os.environ['VALUE'], sys.argv[1])))"
        command = ["python3", "-c", show, argument]
        plan = HostPlan(0, {"job": job, "attempt": 1, "env": {"VALUE": value}, "command": command})
        rig.hosts.start(slice, [plan], timeout=60)
        arrived = until(lambda: rig.look(slice, 0, "cat ~/.tpujob/out"), "the program has printed")
        assert arrived.strip() == ascii((value, argument))

    check()
    assert rig.look(slice, 0, 'find "$HOME" "$TMPDIR" -name "*canary*" -not -name "plan-*"') == ""


@settings(max_examples=30)
@given(job=st.text(max_size=300), attempt=st.integers() | st.text())
def test_a_plans_file_name_is_harmless(job: str, attempt: Any):
    name = plan_name({"job": job, "attempt": attempt})
    assert name.isascii()
    assert len(name) < 100
    assert not set(name) & set("/\\ $`'\"\n;&|*?")


def _plan(host: int, **orders: Any) -> HostPlan:
    return HostPlan(host, {"job": "000001", "attempt": 1, "command": SLEEP, **orders})
