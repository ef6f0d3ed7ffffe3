"""One connection: what a command reads and prints, within bounds of memory and time."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.farm_rig import FarmProcess, until
from tpujob.adapters.ssh import FileKeys
from tpujob.adapters.ssh.connection import MAX_OUTPUT, Connection
from tpujob.adapters.ssh.host_keys import HostKeys
from tpujob.adapters.ssh.keys import public_line
from tpujob.adapters.ssh.transport import Login
from tpujob.errors import Transient
from tpujob.lib.tries import Deadline


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarmProcess]:
    process = FarmProcess(tmp_path_factory.mktemp("farm"))
    yield process
    process.stop()


@pytest.fixture
def connection(farm: FarmProcess, tmp_path: Path) -> Iterator[Connection]:
    key = FileKeys(tmp_path).private_key("tj-000001-1")
    (address,) = farm.slice(tmp_path.name, 1, key=public_line(key))
    login = Login(address, farm.ssh_port, "tpujob", key)
    connection = Connection(login, HostKeys({}, hosts=1))
    connection.open(Deadline(60))
    yield connection
    connection.abort()


def test_input_of_any_bytes_arrives_whole_and_ends(connection: Connection):
    data = bytes(range(256)) * 8192
    output = connection.run("wc -c; exit 7", Deadline(60), stdin=data)
    assert (output.code, output.text.strip()) == (7, str(len(data)))
    assert connection.run("cat", Deadline(60)).text == ""


def test_a_command_that_ends_before_it_has_read_its_input_gives_its_reason(connection: Connection):
    output = connection.run("echo no >&2; exit 3", Deadline(60), stdin=bytes(8 << 20))
    assert (output.code, output.text) == (3, "no\n")
    assert connection.run("true", Deadline(60)).code == 0, "the connection is still in use"


def test_the_end_of_long_output_is_kept_whatever_its_characters(connection: Connection):
    output = connection.run("yes ä€😀 | head -200000; echo; echo end", Deadline(60))
    assert len(output.text.encode()) <= MAX_OUTPUT + 3
    assert output.text.endswith("ä€😀\n" * 1000 + "\nend\n")
    assert "\ufffd" not in output.text[3:], "a character was cut between two packets"


@pytest.mark.parametrize("stream", [1, 2])
def test_a_flood_is_given_up_on_either_stream(connection: Connection, stream: int):
    with pytest.raises(Transient, match="printed more than 16 MiB"):
        connection.run(f"yes >&{stream}", Deadline(60))


def test_a_command_past_its_deadline_is_no_answer_also_while_it_reads_nothing(
    connection: Connection,
):
    with pytest.raises(Transient, match="no answer in time"):
        connection.run("sleep 1000", Deadline(1), stdin=bytes(8 << 20))
    with pytest.raises(Transient, match="the connection is closed"):
        connection.run("true", Deadline(60))
    connection.open(Deadline(60))
    assert connection.run("true", Deadline(60)).code == 0


def test_a_command_that_is_killed_or_cut_off_has_no_exit_code(connection: Connection):
    with pytest.raises(Transient, match="the connection broke, or the command was killed"):
        connection.run("kill -9 $$", Deadline(60))
    connection.open(Deadline(60))
    threading.Timer(0.2, connection.abort).start()
    with pytest.raises(Transient):
        connection.run("sleep 1000", Deadline(60))


def test_the_threads_of_a_command_end_with_it(connection: Connection):
    others = set(threading.enumerate())
    for _ in range(3):
        connection.run("echo x", Deadline(60))
    until(lambda: set(threading.enumerate()) <= others, "the end of the commands' threads")
