"""`RemoteJobs` against the real server: every call arrives as it was made, and every error comes back as it was."""

import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.http import ask
from tests.support.scripted import (
    LIMITLESS,
    Front,
    ScriptedJobs,
    event_view,
    job_view,
    leak_view,
    listening,
    log_line,
    scripted_app,
    served,
    suspect_view,
    unix_socket,
)
from tests.support.waiting import LONG
from tpujob import __version__, errors
from tpujob.adapters.http import client as remote_module
from tpujob.adapters.http.client import RemoteJobs
from tpujob.api import BrokenView, CallerView, HostAccess, JobsApi, ListQuery, LogPage
from tpujob.domain import paging
from tpujob.errors import BackendGone, BadRequest, NotFound, Transient
from tpujob.lib import unix_sockets
from tpujob.lib.http import HttpReply, HttpRequest


@pytest.fixture
def remote(url: str) -> RemoteJobs:
    return RemoteJobs(url)


NOTHING: dict[str, Any] = {}
JOB = {"job": "42"}
NAME = "ä?#%2F h 1"  #: what a URL must not take for something else
#: how each method is called; `list`, `put_bundle` and `follow` have tests of their own
CALLS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("whoami", "budgets", "ledger", "cost", "reached"), NOTHING),
    **dict.fromkeys(("secrets", "queue", "shares"), NOTHING),
    **dict.fromkeys(("health", "channels", "hosts", "members", "leaks", "sweep", "fsck"), NOTHING),
    **dict.fromkeys(("outputs", "read_files", "write_files"), JOB),
    **dict.fromkeys(("get", "patch", "hold", "release", "top", "requeue", "delete"), JOB),
    "plan": {"spec": {"name": "x"}},
    "create": {"spec": {"name": "x"}, "bundles": ["gs://b/1"], "idempotency_key": "k"},
    "events": {"job": "digits", "after": 1},
    "metrics": JOB,
    "curves": {"jobs": ["42", "digits"]},
    "logs": {"job": "42", "host": 0, "attempt": 1, "tail": 0, "since": 1.5},
    "log_block": {"job": "42", "host": 0, "cursor": ""},
    "log_window": {"job": "42", "query": {"part": 0.0, "lines": 5}},
    "log_search": {"job": "42", "query": {"text": "a b&c", "regexp": True}},
    "diff": {"a": "42", "b": "digits"},
    "access": {"job": "42", "host": 1, "key": "ssh-ed25519 AAAA"},
    "cancel": {"job": "42", "release": True},
    "resume": {"job": "42", "budget": 12.5},
    "annotate": {"job": "42", "note": "lr was too high", "add": ["baseline"], "remove": ["new"]},
    "clean": {"job": "42", "checkpoints": True},
    "deliveries": {"channel": "lab", "limit": 5},
    "test_channel": {"channel": NAME},
    "set_channel_secret": {"name": "SLACK_LAB", "value": "https://x"},
    "pin_host": {"physical": NAME, "verdict": "good"},
    "give_role": {"name": "zoe@example.org", "role": "viewer"},
}


def test_a_slow_answer_is_noted_once_and_a_long_poll_never(
    api: ScriptedJobs, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "SLOW", 0.01)
    noted = threading.Semaphore(0)

    def answer(_: ScriptedJobs) -> CallerView:
        assert noted.acquire(timeout=LONG), "it is noted while the answer is awaited"
        return CallerView(id="1", name="ada", role="viewer")

    monkeypatch.setattr(ScriptedJobs, "_on_whoami", answer, raising=False)
    remote = RemoteJobs(url)
    remote.slow = noted.release
    assert remote.whoami()["name"] == "ada"
    assert remote.slow is None
    remote.slow = noted.release
    next(remote.follow("42", timeout=1.0))
    assert not noted.acquire(blocking=False)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_arrives_and_its_answer_too(api: ScriptedJobs, remote: JobsApi, name: str) -> None:
    api.happened["000042"] = [event_view(1, "queued", "created"), event_view(2, "running", "runs")]
    api.pages = [LogPage(lines=[log_line(0, "a")], cursor="", done=False)]
    api.host_access = HostAccess(
        host=1,
        address="127.1.0.2",
        port=22,
        user="tpujob",
        certificate="ssh-ed25519-cert-v01@openssh.com AAAA",
        expires_at="2026-01-01T00:10:00Z",
        host_keys=["127.1.0.2 ssh-ed25519 AAAA"],
        instance="",
        zone="us-central2-b",
        project="p",
    )
    api.suspects = {"rack-7/..": suspect_view("rack-7"), "h 1": suspect_view("h 1", pinned="bad")}
    api.swept["kept"] = [leak_view("tj-000042-1"), leak_view("tj-000007-3", usd_per_hour=None)]
    api.swept["unlisted"] = {"us-east5-b": "503"}
    api.broken = [BrokenView(rule="I2", job="000042", text="tj-000042-1 belongs to no job")]
    answer = getattr(remote, name)(**CALLS[name])
    arrived = api.named(name)[0]
    assert {n: value for n, value in arrived.items() if n in CALLS[name]} == CALLS[name]
    assert answer == getattr(api, name)(**CALLS[name])


def test_a_machine_of_any_name_is_forgotten_once(api: ScriptedJobs, remote: RemoteJobs) -> None:
    api.suspects = {"h 1": suspect_view("h 1")}
    assert remote.clear_host("h 1") is None
    assert api.suspects == {}
    with pytest.raises(NotFound, match="is neither suspected nor pinned"):
        remote.clear_host("h 1")
    with pytest.raises(BadRequest):
        remote.pin_host("h 1", "ugly")
    for name in ("", "..", "/a/b/c", "$(reboot)", "\u202e"):
        assert remote.pin_host(name, "bad")["physical"] == name


def test_secrets_are_set_listed_and_removed(api: ScriptedJobs, remote: RemoteJobs) -> None:
    value = 'two\nlines, "ä" \\ 日本'
    assert remote.set_secret("WANDB_API_KEY", value) is None
    assert api.kept == {"WANDB_API_KEY": value}
    assert [secret["name"] for secret in remote.secrets()] == ["WANDB_API_KEY"]
    assert remote.remove_secret("WANDB_API_KEY") is None
    with pytest.raises(NotFound, match="no secret WANDB_API_KEY"):
        remote.remove_secret("WANDB_API_KEY")
    for name in ("../jobs", ""):
        with pytest.raises(BadRequest, match="cannot be the name of a secret"):
            remote.set_secret(name, value)
    with pytest.raises(BadRequest, match="at most 65536 characters") as caught:
        remote.set_secret("A", "canary" * 11_000)
    assert "canary" not in str(caught.value)


def test_a_bundle_arrives_whole(api: ScriptedJobs, remote: RemoteJobs) -> None:
    data = bytes(range(256)) * 10_000
    sha = hashlib.sha256(data).hexdigest()
    assert remote.put_bundle(sha, data, bucket="gs://b") == f"gs://b/bundles/{sha}.tar.gz"
    with pytest.raises(BadRequest):
        remote.put_bundle("0" * 64, data, bucket="gs://b")


EVERY_ERROR = [
    errors.Refused("no quota", cause="QUOTA", hint="ask for more")
    if kind is errors.Refused
    else kind("what happened", hint="what to do")
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.TpujobError)
]


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda e: type(e).__name__)
def test_every_error_comes_back_as_it_was(
    api: ScriptedJobs,
    remote: RemoteJobs,
    error: errors.TpujobError,
) -> None:
    remote._transport.busy_timeout = 0
    api.raises = error
    with pytest.raises(errors.TpujobError) as caught:
        remote.get("42")
    arrived = caught.value
    assert type(arrived) is type(error)
    assert (arrived.message, arrived.hint, arrived.exit_code) == (
        error.message,
        error.hint,
        error.exit_code,
    )
    assert getattr(arrived, "cause", None) == getattr(error, "cause", None)


def test_a_refusal_by_a_backend_of_another_version_names_both(
    api: ScriptedJobs, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the key of a job file that an older backend does not know, or a path that it does not have."""
    api.raises = errors.BadSpec("outputs: no such key.", hint="see `tpujob schema`")
    local, deployed = RemoteJobs(url, log="backend.log"), RemoteJobs(url)
    for remote, cure in (
        (local, "restart it: tpujob down, then tpujob up"),
        (deployed, "update the older one (a backend: deploy/up.sh)"),
    ):
        with pytest.raises(errors.BadSpec, match="no such key") as caught:
            remote.plan({})
        versions = f"The backend at {url} is tpujob 0.0.test, this command is {__version__}: {cure}"
        assert caught.value.hint == f"see `tpujob schema`\n{versions}"
    api.raises = None
    with pytest.raises(NotFound, match="there is no /v1/newer") as caught:
        deployed._send("GET", "/newer")
    assert versions in caught.value.hint
    monkeypatch.setattr("tpujob.adapters.http.client.__version__", "0.0.test")
    with pytest.raises(NotFound, match="there is no /v1/newer") as caught:
        deployed._send("GET", "/newer")
    assert "version" not in caught.value.hint
    assert "0.0.test" not in caught.value.hint


@pytest.mark.parametrize("name", ["a b", "ä", "<script>", "$(reboot)", "%2F", "?x=1", "a#b", "..;"])
def test_a_hostile_name_stays_one_name(api: ScriptedJobs, remote: RemoteJobs, name: str) -> None:
    with pytest.raises(NotFound):
        remote.get(name)
    assert api.named("get") == [{"job": name}]


@pytest.mark.parametrize("name", ["", ".", "..", "../bundles", "42/cancel"])
def test_a_path_is_never_sent_as_a_name(api: ScriptedJobs, remote: RemoteJobs, name: str) -> None:
    with pytest.raises(NotFound):
        remote.get(name)
    assert api.calls == []


@pytest.mark.parametrize("remains", [True, False], ids=["a socket that is left", "no socket"])
def test_where_a_backend_went_is_asked_once_and_only_before_the_first_answer(remains: bool) -> None:
    lookups = 0

    with unix_socket() as (place, gone), answering(EMPTY_LIST) as (url, _):
        place.close()
        gone += "" if remains else ".gone"

        def find_again() -> str:
            nonlocal lookups
            lookups += 1
            return url if lookups == 1 else gone

        remote = RemoteJobs(gone, find_again=find_again)
        assert remote.members() == []
        assert remote.url == url
        remote.close()
        nowhere = RemoteJobs(gone, find_again=find_again)
        with pytest.raises(BackendGone):
            nowhere.list()
        with pytest.raises(BackendGone):
            nowhere.list()
    assert lookups == 2


@pytest.mark.parametrize(
    "url", ["http://tpujob.example", "http://127.0.0.1:8080", "http://localhost:8080", "unix:x"]
)
def test_nothing_is_sent_unencrypted_to_a_port_of_this_machine_either(url: str) -> None:
    """Whoever binds a port first gets what is sent to it; a proxy at that port is no exception."""
    with pytest.raises(BadRequest, match="unencrypted"):
        RemoteJobs(url)
    RemoteJobs("https://tpujob.example")


def test_nothing_is_said_to_a_socket_that_another_user_has_put_there() -> None:
    with answering(b"") as (url, heard), pytest.raises(BackendGone, match="nothing was sent"):
        RemoteJobs(url, uid=os.geteuid() + 1).create({"name": "x"})
    assert heard == [b""]


@contextmanager
def answering(*answers: bytes, cut: bool = False) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives each connection one answer, then closes it without a word on the second request. `cut`: it
    says that nothing comes after the answer."""
    heard: list[bytes] = []

    def serve() -> None:
        for answer in answers:
            with place.accept()[0] as connection:
                connection.settimeout(LONG)
                heard.append(connection.recv(65536))
                if answer:
                    connection.sendall(answer)
                    if cut:
                        connection.shutdown(socket.SHUT_WR)
                    heard.append(connection.recv(65536))

    with unix_socket() as (place, url):
        place.settimeout(LONG)
        thread = threading.Thread(target=serve)
        thread.start()
        yield url, heard
        thread.join(LONG)


EMPTY_LIST = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n[]"


def test_a_question_is_asked_again_once_when_a_kept_connection_turns_out_closed() -> None:
    with answering(EMPTY_LIST, EMPTY_LIST) as (url, heard):
        remote = RemoteJobs(url)
        assert remote.members() == []
        assert remote.members() == []
        remote.close()
    assert len([h for h in heard if h]) == 3, "the second was sent on the old, then on a new one"


def test_a_create_without_a_key_is_never_sent_twice() -> None:
    with answering(EMPTY_LIST, b"") as (url, heard):
        remote = RemoteJobs(url)
        assert remote.members() == []
        remote.close()
        with pytest.raises(BackendGone):
            remote.create({"name": "x"})
    assert len([h for h in heard if b"POST" in h]) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[",
    ],
    ids=["another protocol", "no JSON", "no error form", "cut"],
)
def test_another_server_at_that_port_is_no_backend(answer: bytes) -> None:
    with answering(answer, cut=answer.endswith(b"[")) as (url, _):
        remote = RemoteJobs(url)
        with pytest.raises((BackendGone, Transient)):
            remote.list()
        remote.close()


def test_a_refused_host_name_is_one_sentence_with_the_names_that_work(
    api: ScriptedJobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The request for the version, with which refusals are explained, is refused in the same way."""
    asked: list[str] = []
    place = unix_sockets.listen(unix_sockets.place(tmp_path, "b.sock"))
    with listening(scripted_app(api, hosts=["lab.example.org"]), place=place) as url:
        remote = RemoteJobs(url)
        transport = remote._transport  # pyright: ignore[reportPrivateUsage] its requests are counted
        real = transport.request

        def counted(request: HttpRequest) -> HttpReply:
            asked.append(urlsplit(request.url).path)
            return real(request)

        monkeypatch.setattr(transport, "request", counted)
        with pytest.raises(BadRequest, match="does not answer under that host name") as caught:
            remote.list()
    assert caught.value.hint == "It answers under: lab.example.org."
    assert asked == ["/v1/jobs", "/v1/version"]


def test_a_size_limit_of_a_proxy_is_distinguished_from_the_backends() -> None:
    page = b"<html>413 Request Entity Too Large</html>"
    answer = b"HTTP/1.1 413 No\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)
    with answering(answer) as (url, _):
        remote = RemoteJobs(url)
        with pytest.raises(BadRequest, match="no request of that size") as caught:
            remote.put_bundle("0" * 64, b"code", bucket="gs://b")
        assert "32 MiB" in caught.value.hint
        remote.close()


def test_a_missing_backend_is_reported_and_how_to_start_it_where_one_can() -> None:
    url, log = "unix:/nowhere/backend.sock", "/state/run/backend.log"
    for log_file, hints in (("", ["check the address"]), (log, ["start it: tpujob up", log])):
        with pytest.raises(BackendGone, match="nothing answers") as caught:
            RemoteJobs(url, log=log_file).list()
        assert all(hint in caught.value.hint for hint in hints)


def test_a_backend_that_hangs_is_given_up() -> None:
    with unix_socket() as (_, url), pytest.raises(Transient, match="in time"):
        RemoteJobs(url, timeout=0.2).list()


# Follow --------------------------------------------------------------------------------------------------------------


def test_follow_yields_at_once_and_at_each_change(api: ScriptedJobs, remote: RemoteJobs) -> None:
    hints = remote.follow("42", timeout=20)
    next(hints)
    for step in (1, 2, 3):
        thread = threading.Thread(target=lambda: next(hints))
        thread.start()
        assert api.polling.acquire(timeout=LONG)
        api.change(job_view(version=6 + step))
        thread.join(LONG)
        assert not thread.is_alive(), "the hint never came"
    assert all(arguments["job"] == "42" for arguments in api.named("get"))


def test_a_change_between_two_polls_is_not_missed(api: ScriptedJobs, remote: RemoteJobs) -> None:
    single, every = remote.follow("42", timeout=25), remote.follow(timeout=25)
    next(single), next(every)
    api.change(api.jobs["000042"])
    api.changed.clear()  # no follower was waiting: the hint is lost
    next(single), next(every)
    assert not api.polling.acquire(blocking=False), "both were answered without a wait"


def test_followers_beyond_the_limit_poll_and_leave_room_for_others(
    api: ScriptedJobs, url: str
) -> None:
    waiting = [RemoteJobs(url) for _ in range(LIMITLESS.streams_each)]

    def wait(remote: RemoteJobs) -> None:
        hints = remote.follow(timeout=25)
        next(hints), next(hints)

    threads = [threading.Thread(target=wait, args=(remote,)) for remote in waiting]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert api.polling.acquire(timeout=LONG)
    one_more = RemoteJobs(url)
    hints = one_more.follow(timeout=0.01)
    next(hints), next(hints), next(hints)
    assert not api.polling.acquire(blocking=False), "it was answered without a wait"
    assert one_more.list()["matching"] == len(api.jobs), "short calls are served"
    api.changes += 1
    for thread in threads:
        while thread.is_alive():
            api.changed.set()
            thread.join(0.01)


def test_a_poll_is_answered_in_time(remote: RemoteJobs) -> None:
    """Proxies give up on a request that takes a minute."""
    hints = remote.follow("42", timeout=0.1)
    began = time.monotonic()
    next(hints), next(hints), next(hints)
    assert 0.2 <= time.monotonic() - began < 60


def test_a_missing_job_cannot_be_followed(remote: RemoteJobs) -> None:
    with pytest.raises(NotFound):
        next(remote.follow("nothing"))


def test_a_poll_does_not_keep_the_backend_from_stopping(api: ScriptedJobs) -> None:
    front = Front(api)
    with served(front) as url:
        hints = RemoteJobs(url).follow("42", timeout=30)
        next(hints)
        waiting = threading.Thread(target=lambda: next(hints))
        waiting.start()
        assert api.polling.acquire(timeout=LONG)
        front.stopping = True
        waiting.join(LONG)
        assert not waiting.is_alive(), "the poll goes on although the backend is to end"


# Pages ---------------------------------------------------------------------------------------------------------------


def test_a_long_list_comes_in_pages_and_is_whole(
    api: ScriptedJobs, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE", 3)
    monkeypatch.setattr(remote_module, "PAGE", 3)
    ids = [f"{n:06d}" for n in range(8, 0, -1)]
    api.jobs = {id: job_view(id) for id in ids}
    api.happened["000001"] = [event_view(n, "queued", "created") for n in range(1, 8)]
    remote = RemoteJobs(url)
    whole = remote.list()
    assert ([row["id"] for row in whole["rows"]], whole["next"]) == (ids, "")
    assert len(api.named("list")) == 3
    some = remote.list({"limit": 4})
    assert [row["id"] for row in some["rows"]] == ids[:4]
    rest = remote.list({"limit": 5, "after": some["next"]})
    assert ([row["id"] for row in rest["rows"]], rest["next"]) == (ids[4:], "")
    assert [event["seq"] for event in remote.events("1")] == [*range(1, 8)]
    assert [event["seq"] for event in remote.events("1", after=2, limit=2)] == [3, 4]


def test_what_a_list_is_asked_arrives_as_it_was_said(api: ScriptedJobs, url: str) -> None:
    query: ListQuery = {
        "user": "ada & eve",
        "mine": True,
        "states": ["running", "queued"],
        "causes": ["PREEMPTED"],
        "types": ["v4-16"],
        "zones": ["us-central2-b"],
        "text": "llama+1b",
        "order": "left",
        "reverse": True,
        "fields": ["name"],
    }
    for active in (True, False):
        RemoteJobs(url).list({**query, "active": active, "limit": 7})
        arrived = {name: value for name, value in api.named("list")[-1].items() if value != ""}
        assert arrived == {**query, "active": active, "limit": 7}


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1"])
def test_a_page_has_a_size_that_makes_sense(url: str, query: str) -> None:
    status, _, body = ask(url, "GET", f"/v1/jobs?{query}")
    assert (status, body["error"]["type"]) == (400, "BadRequest")
