"""How the hosts of a slice meet: many of them, at a host 0 that may open few files."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tpujob.agent.preflight.meeting import meet

HOSTS, FILES = 60, 32

HOST_0 = """
import json, resource, sys
from tpujob.agent.preflight.meeting import meet
few = (int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, few)
words = meet(sys.argv[2], {"job": "1", "attempt": 1, "host": 0}, int(sys.argv[3]), 30, lambda: None)
print(json.dumps([len(words), resource.getrlimit(resource.RLIMIT_NOFILE) == few]))
"""


def test_more_hosts_can_meet_than_a_session_may_open_files() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = [sys.executable, "-c", HOST_0, str(FILES), address, str(HOSTS)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as host_0:

        def other(number: int) -> int:
            said = {"job": "1", "attempt": 1, "host": number}
            return len(meet(address, said, HOSTS, 30, lambda: None))

        with ThreadPoolExecutor(HOSTS) as pool:
            met = set(pool.map(other, range(1, HOSTS)))
        said = host_0.communicate(timeout=60)[0]
    assert met == {HOSTS}
    count, as_before = json.loads(said)
    assert count == HOSTS
    assert as_before, "the program would get another limit than the host's"
