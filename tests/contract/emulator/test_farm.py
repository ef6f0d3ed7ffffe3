"""The farm from outside: what a session sees, what preemption does, what is left afterwards (nothing)."""

import json
import shlex
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import paramiko
import pytest

from tests.support.farm_rig import FarmProcess, alive, process_state, refuses, until
from tpujob.agent.setup.meeting import route_to
from tpujob.emulator.farm import image
from tpujob.emulator.farm.cluster import cluster_variables
from tpujob.emulator.farm.farm import Coordinators
from tpujob.protocol import coordinator_port


def test_a_session_has_the_environment_of_a_tpu_vm_and_nothing_of_the_farm(farm: FarmProcess):
    (address,) = farm.slice("tj-env", env={"STORAGE_EMULATOR_HOST": "http://127.0.0.1:1"})
    code, out, _ = farm.run(address, "env -0; cd; pwd")
    *pairs, cwd = out.decode().rstrip("\n").split("\0")
    env = dict(pair.split("=", 1) for pair in pairs)
    assert code == 0
    assert env["HOME"] == cwd
    assert (env["USER"], env["JAX_PLATFORMS"], env["JAX_NUM_CPU_DEVICES"]) == ("tpujob", "cpu", "4")
    assert env["STORAGE_EMULATOR_HOST"] == "http://127.0.0.1:1"
    assert env["GCE_METADATA_HOST"].startswith(f"{address}:")
    names = {"HOME", "USER", "LOGNAME", "SHELL", "LANG", "PATH", "TMPDIR", "GCE_METADATA_HOST"}
    names |= {"JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "PJRT_DEVICE", "CPU_NUM_DEVICES"}
    names |= {"TPUJOB_DEVICES", "STORAGE_EMULATOR_HOST"}
    names |= {"TPUJOB_MEMORY", "TPUJOB_VMSTAT", "TPUJOB_PACKAGE_LOCKS", "TPUJOB_ROUTES"}
    names |= {"GCE_METADATA_IP", *cluster_variables([address], 0, 1)}
    of_the_shell = {"PWD", "SHLVL", "_", "OLDPWD"}
    assert set(env) - of_the_shell == names | {"TPUJOB_EMULATED_HOST"}, "something leaked in"
    _, out, _ = farm.run(
        address, "ls $TPUJOB_DEVICES; python3 -c 'import jax, sys; print(sys.prefix)'"
    )
    *devices, prefix = out.decode().split()
    assert [Path(d).name for d in devices] == ["accel0", "accel1", "accel2", "accel3"]
    assert prefix == sys.prefix, "python3 on a host is not this environment's"


#: what `jax.distributed.initialize()` finds without arguments, as JAX itself computes it
DETECT = """
import json, os, sys
from jax._src.clusters import ClusterEnv
results = []
for variables in json.load(sys.stdin):
    with_user = {**os.environ, **variables}
    before, os.environ = os.environ, with_user
    results.append(ClusterEnv.auto_detect_unset_distributed_params(*[None] * 5, 10))
    os.environ = before
print(json.dumps(results))
"""
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://10.9.9.9:1",
    "OMPI_COMM_WORLD_SIZE": "5",
    "OMPI_COMM_WORLD_RANK": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}
MULTISLICE = {
    "MEGASCALE_COORDINATOR_ADDRESS": "10.9.9.1:8080",
    "MEGASCALE_NUM_SLICES": "3",
    "MEGASCALE_SLICE_ID": "2",
}


def test_jax_finds_the_hosts_of_its_slice_unless_the_user_says_otherwise(farm: FarmProcess):
    first, second = farm.slice("tj-jax", hosts=2, group="q1")
    script = f"python3 -c {shlex.quote(DETECT)}"
    cases = [{}, OPEN_MPI, {"TPU_WORKER_HOSTNAMES": second, "TPU_WORKER_ID": "0"}, MULTISLICE]
    code, out, error = farm.run(second, script, json.dumps(cases).encode())
    assert code == 0, error.decode()
    (meets, *found), mpi, alone, several = json.loads(out)
    address, _, port = meets.rpartition(":")
    assert (address, found) == (first, [2, 1, None])
    assert mpi[0].startswith("10.9.9.9:")
    assert mpi[1:3] == [5, 4]
    assert alone == [f"{second}:{port}", 1, 0, None]
    assert several == [f"10.9.9.1:{port}", 6, 5, None]


def test_only_slices_of_one_queued_resource_meet_at_one_port(farm: FarmProcess):
    groups = {"tj-a-0": "q1", "tj-a-1": "q1", "tj-b": "q2", "tj-c": "", "tj-d": ""}
    hosts = {name: farm.slice(name, group=group)[0] for name, group in groups.items()}
    of = {name: farm.run(host, "echo $JAX_COORDINATOR_PORT")[1] for name, host in hosts.items()}
    assert of["tj-a-0"] == of["tj-a-1"]
    assert len(set(of.values())) == 4
    assert int(of["tj-b"]) == coordinator_port(hosts["tj-b"]), "that of TPUJOB_COORDINATOR"
    farm.call("DELETE", "/slices/tj-a-0")
    (again,) = farm.slice("tj-a-0", group="q1")
    assert farm.run(again, "echo $JAX_COORDINATOR_PORT")[1] == of["tj-a-1"]


def test_a_port_that_another_slice_has_is_skipped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = Coordinators()
        assert ports.add("a", "q1", 10_001) == 10_001
        assert ports.add("b", "q2", 10_001) is None
        assert ports.add("b", "q2", other.getsockname()[1]) is None
        assert ports.add("c", "q1", 10_002) == 10_001
        ports.remove("a")
        assert ports.add("b", "q2", 10_001) is None, "the group still has it"
        ports.remove("c")
        assert ports.add("b", "q2", 10_001) == 10_001


def test_commands_exit_as_under_openssh(farm: FarmProcess):
    (address,) = farm.slice("tj-exec")
    assert farm.run(address, "exit 7")[0] == 7
    assert farm.run(address, "kill -9 $$")[0] == -1, "an exit signal is not an exit code"
    assert farm.run(address, "cat; echo no >&2", b"yes")[1:] == (b"yes", b"no\n")
    big = "head -c 5000000 /dev/zero; head -c 300000 /dev/zero >&2"
    code, out, err = farm.run(address, f"({big}) 2>&1 | cat; {big.split(';')[1]}")
    assert (code, len(out), len(err)) == (0, 5_300_000, 300_000), "output was lost"


def test_a_shell_on_a_terminal_knows_its_size_and_can_be_interrupted(farm: FarmProcess):
    (address,) = farm.slice("tj-pty")
    with farm.ssh(address) as client:
        channel = client.invoke_shell("xterm", width=100, height=30)
        channel.settimeout(20)
        channel.send(b"stty size\n")
        _expect(channel, b"30 100")
        channel.send(b"sh -c 'echo go''ing; exec sleep 1000'\n")
        _expect(channel, b"going")
        channel.resize_pty(120, 40)
        channel.send(b"\x03")  # Ctrl-C ends the sleep
        _expect(channel, b"^C")
        # a background process that holds the terminal does not keep the session open
        channel.send(b"setsid sleep 1000 & stty size; exit 5\n")
        _expect(channel, b"40 120")
        assert channel.recv_exit_status() == 5


def test_files_go_by_sftp_relative_to_home_or_absolute(farm: FarmProcess, tmp_path: Path):
    (address,) = farm.slice("tj-sftp")
    with farm.ssh(address) as client, client.open_sftp() as sftp:
        home = sftp.normalize(".")
        with sftp.open("notes.txt", "wb") as file:
            file.write(b"hello")
        assert sftp.stat(f"{home}/notes.txt").st_size == 5
    assert farm.run(address, "cat ~/notes.txt")[1] == b"hello"


def test_only_keys_of_the_metadata_are_accepted(farm: FarmProcess):
    other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKrJ0gM1WvQz0n0n9Q8CKlQq7Qm8hLqZ7y4r6b9yV0aN"
    (address,) = farm.slice("tj-locked", key=other)
    with pytest.raises(paramiko.AuthenticationException), farm.ssh(address):
        pass
    farm.slice("tj-locked")  # the metadata now has our key as well: no restart is needed
    assert farm.run(address, "true")[0] == 0
    with pytest.raises(paramiko.AuthenticationException), farm.ssh(address, user="root"):
        pass


def test_a_dropped_connection_leaves_the_process_running(farm: FarmProcess, tmp_path: Path):
    (address,) = farm.slice("tj-drop")
    pids, noticed = tmp_path / "pids", tmp_path / "noticed"
    with farm.ssh(address) as client:
        talk = f"trap '' PIPE; echo $$ > {pids}; while echo 2>/dev/null; do sleep 0.1; done"
        client.exec_command(f"{talk}; touch {noticed}; exec sleep 1000")
        pid = int(until(lambda: pids.exists() and pids.read_text().strip(), "the command runs"))
    until(noticed.exists, "its pipe is closed")
    until(lambda: farm.processes("tj-drop") == [pid], "only the command is left")
    assert alive(pid)
    farm.call("DELETE", "/slices/tj-drop")
    assert not alive(pid)


def test_preemption_ends_detached_processes_gently_then_hard(farm: FarmProcess, tmp_path: Path):
    addresses = farm.slice("tj-doomed", hosts=2)
    script, log, pids = _stubborn(tmp_path)
    for address in addresses:
        farm.start_detached(address, script)
        # one that drops its environment is found through its parent
        farm.start_detached(address, script, prefix="env -i setsid --wait ")
    numbers = until(lambda: _lines(pids, 4), "four programs run")
    assert all(alive(int(n)) for n in numbers)

    farm.call("POST", "/slices/tj-doomed/preempt", {"notice_s": 8})
    until(lambda: _lines(log, 4), "each of them has seen SIGTERM")
    assert all(alive(int(n)) for n in numbers), "killed within the notice time"
    until(lambda: not farm.processes("tj-doomed"), "the hosts are off")
    until(lambda: not any(alive(int(n)) for n in numbers), "every program is dead")
    until(lambda: refuses(addresses[0], farm.ssh_port), "SSH is refused")


def test_an_open_session_ends_when_its_host_is_switched_off(farm: FarmProcess):
    (address,) = farm.slice("tj-cut")
    with farm.ssh(address) as client:
        _, out, _ = client.exec_command("echo up; exec sleep 1000")
        assert out.readline() == "up\n"
        farm.call("POST", "/slices/tj-cut/preempt", {"notice_s": 0})
        assert out.channel.recv_exit_status() == -1


def test_a_slowed_host_is_paused_and_resumed_in_turn(farm: FarmProcess, tmp_path: Path):
    (address,) = farm.slice("tj-slow")
    pids = tmp_path / "pids"
    farm.run(address, f"setsid sh -c 'echo $$ > {pids}; exec sleep 1000' > /dev/null 2>&1 &")
    (pid,) = until(lambda: _lines(pids, 1), "the program runs")
    farm.call("POST", "/slices/tj-slow/slow", {"host": 0, "factor": 10})
    until(lambda: process_state(pid) == "T", "it is stopped")
    until(lambda: process_state(pid) == "S", "it goes on")
    until(lambda: process_state(pid) == "T", "it is stopped again")
    farm.call("POST", "/slices/tj-slow/slow", {"host": 0, "factor": 1})
    until(lambda: process_state(pid) == "S", "it goes on for good")


def test_making_a_slice_again_changes_nothing_and_deleting_it_leaves_nothing(farm: FarmProcess):
    first = farm.slice("tj-twice", hosts=2)
    home = Path(farm.run(first[1], "pwd")[1].decode().strip())
    assert farm.slice("tj-twice", hosts=2) == first
    assert home.exists()
    farm.call("DELETE", "/slices/tj-twice")
    farm.call("DELETE", "/slices/tj-twice")
    assert not home.parent.parent.exists()
    assert not farm.has("tj-twice")
    again = farm.slice("tj-twice", hosts=2)
    assert not set(again) & set(first), "an address came back at once"


def test_each_host_has_its_own_host_key(farm: FarmProcess):
    keys: set[str] = set()
    for address in farm.slice("tj-keys", hosts=3):
        with farm.ssh(address) as client:
            transport = client.get_transport()
            assert transport is not None
            keys.add(transport.get_remote_server_key().get_base64())
    assert len(keys) == 3


def test_a_farm_that_ends_takes_its_processes_along(tmp_path: Path):
    farm = FarmProcess(tmp_path)
    pid = _run_stubborn(farm, tmp_path)
    command = [sys.executable, "-m", "tpujob.emulator.farm", "--ready", tmp_path / "other"]
    crowded = subprocess.run(
        [*command, "--state", farm.state], capture_output=True, text=True, timeout=120
    )
    assert (crowded.returncode, "another farm runs on" in crowded.stderr) == (1, True)
    assert farm.stop() == 0
    assert not alive(pid)
    assert [p.name for p in farm.state.iterdir()] == ["farm.lock"]


def test_the_next_farm_cleans_up_after_one_that_was_killed(tmp_path: Path):
    first = FarmProcess(tmp_path)
    pid = _run_stubborn(first, tmp_path)
    first.kill()
    assert alive(pid), "nothing to clean up: the test proves nothing"
    second = FarmProcess(tmp_path)
    try:
        assert not alive(pid)
        assert not second.has("tj-left")
    finally:
        second.stop()


def _stubborn(folder: Path) -> tuple[Path, Path, Path]:
    """A script that adds its pid to a file, notes every SIGTERM in another, and does not go of its own accord."""
    script, log, pids = folder / "stubborn.sh", folder / "log", folder / "pids"
    script.write_text(
        f"trap 'echo saw-term >> {log}' TERM\necho $$ >> {pids}\nwhile :; do sleep 0.05; done\n"
    )
    return script, log, pids


def _run_stubborn(farm: FarmProcess, folder: Path) -> int:
    """Return the pid of a stubborn program on the one host of the slice `tj-left`."""
    (address,) = farm.slice("tj-left")
    script, _, pids = _stubborn(folder)
    farm.start_detached(address, script)
    (pid,) = until(lambda: _lines(pids, 1), "the program runs")
    return int(pid)


def _lines(path: Path, at_least: int) -> list[str]:
    lines = path.read_text().split() if path.exists() else []
    return lines if len(lines) >= at_least else []


def _expect(channel: paramiko.Channel, text: bytes) -> None:
    seen = b""
    while text not in seen:
        data = channel.recv(4096)
        assert data, f"the session ended without {text!r}, after {seen!r}"
        seen += data


# What is installed, and the network ----------------------------------------------------------------------------------


def test_a_bare_host_has_what_a_tpu_vm_has(farm: FarmProcess) -> None:
    (address,) = farm.slice("tj-bare", image="bare")

    def output_of(command: str) -> tuple[int, str]:
        code, out, err = farm.run(address, command)
        return code, (out + err).decode().strip()

    version = sysconfig.get_python_version() if image.shortcomings() else "3.10"
    assert output_of("python3 -V")[1].startswith(f"Python {version}.")
    assert output_of("python -V") == (127, "/bin/bash: line 1: python: command not found")
    assert output_of("python3 -m pip --version")[1].endswith("No module named pip")
    assert output_of("python3 -c 'import ensurepip'")[1].endswith("No module named 'ensurepip'")
    assert output_of("python3 -c 'import jax'")[1].endswith("No module named 'jax'")
    assert output_of("docker version")[0] == 1
    assert output_of("command -v uv apt-get sudo")[0] != 0
    farm.call("DELETE", "/slices/tj-bare")


@pytest.mark.slow
def test_hosts_that_are_cut_off_hang(farm: FarmProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropped, as a firewall does it, not refused."""
    addresses = farm.slice("tj-apart", hosts=3, cut=True)

    def way(host: int, to: int) -> tuple[str, int]:
        folder = farm.state / "slices" / "tj-apart" / f"host-{host}"
        monkeypatch.setenv("TPUJOB_ROUTES", str(folder / "routes"))
        return route_to((addresses[to], 8477))

    for host, to in ((1, 0), (2, 0), (0, 2)):
        with pytest.raises(TimeoutError):
            socket.create_connection(way(host, to), timeout=0.2)
    farm.call("POST", "/slices/tj-apart/cut", {"host": 1})
    cut_off = {(h, t) for h in range(3) for t in range(3) if way(h, t) != (addresses[t], 8477)}
    assert cut_off - {(1, 1)} == {(0, 1), (2, 1), (1, 0), (1, 2)}
    farm.call("POST", "/slices/tj-apart/cut", {"off": True})
    assert way(1, 0) == (addresses[0], 8477)
    farm.call("DELETE", "/slices/tj-apart")
