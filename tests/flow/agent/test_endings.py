"""Uploads of an ended attempt for later hosts delay neither the next attempt nor the report of the exit."""

import os
from pathlib import Path

from tests.flow.agent.test_compile_cache import CHECK, versioned
from tests.support.addresses import free_address
from tests.support.agent_host import Host, until

#: an entry of the compile cache that is read for as long as the test likes
SLOW = "mkfifo $TPUJOB_CACHE/slow-cache"


def entry(host: Host) -> Path:
    return host.home / ".tpujob/cache/xla/v4-16/0.6.0-cpu/slow-cache"


def upload(host: Host) -> int:
    """The writing end of an entry, once the agent reads it."""

    def opened() -> int | None:
        try:
            return os.open(entry(host), os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None

    return until(opened, "the upload")


def test_the_next_attempt_meets_while_the_last_one_still_uploads(pair: tuple[Host, Host]) -> None:
    plans = [versioned(host) for host in pair]
    check = {**CHECK, "hosts": 2, "chips": 8, "seconds": 120}
    check |= {"coordinator": free_address(), "meeting": free_address()}

    def start(command: str, attempt: int) -> list[int]:
        return [
            host.start(
                command, attempt=attempt, host=number, hosts=2,
                **{**plans[number], "preflight": check},
            )["pid"]
            for number, host in enumerate(pair)
        ]  # fmt: skip

    first = start(SLOW, 1)
    bucket = pair[0].bucket
    for number in (0, 1):
        until(lambda n=number: bucket.report(1, n).get("exit_code") == 0, "the end of attempt 1")
    descriptor = upload(pair[0])
    start("echo met", 2)
    for number in (0, 1):
        until(lambda n=number: bucket.report(2, n).get("phase") == "exited", "its end")
    assert [bucket.report(2, number)["error"] for number in (0, 1)] == ["", ""]
    assert first[0] in pair[0].processes(), "the first attempt was there all the time"
    os.close(descriptor)


def test_an_exit_and_a_whole_log_are_reported_before_an_upload_ends(host: Host) -> None:
    host.run(f"{SLOW}; echo printed", **versioned(host))
    assert host.bucket.log()[-1] == "printed"
    assert [facts.open for _, facts in host.bucket.segments()[-1:] if facts] == [False]
    descriptor = upload(host)
    entry(host).unlink()  # it cannot be put into the bucket
    os.close(descriptor)
    own = host.out().parent / "agent.log"
    until(lambda: "[tpujob] compiled programs cannot be kept: " in own.read_text(), "the note")
