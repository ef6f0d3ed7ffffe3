"""The limits of one caller, which other callers and the backend's memory do not feel."""

import asyncio
import hashlib
import itertools
import json
import threading
from collections.abc import Coroutine, Mapping
from contextlib import ExitStack
from typing import Any, cast

import pytest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tests.support.callers import ADA, NamedDoor, caller
from tests.support.http import ask, connection_to
from tests.support.scripted import ScriptedJobs, listening, on_socket, scripted_app
from tpujob.adapters.http.client import RemoteJobs
from tpujob.api import JobsApi
from tpujob.domain.access import Principal, Role
from tpujob.errors import Busy
from tpujob.web.api import create_app
from tpujob.web.security.limits import Buckets, Limiter, Limits, Rate

# Rates ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of the rates: nothing is given back, however long the requests of a test take."""
    real = Buckets.wait
    monkeypatch.setattr(Buckets, "wait", lambda buckets, key, now: real(buckets, key, 0.0))


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    buckets = Buckets(Rate(per_second=10, burst=50))
    assert [buckets.wait("ada", 0.0) for _ in range(50)] == [0] * 50
    assert buckets.wait("ada", 0.0) == pytest.approx(0.1)
    assert buckets.wait("bob", 0.0) == 0, "what one has used up is not missed by another"
    assert buckets.wait("ada", 0.1) == 0
    assert buckets.wait("ada", 0.15) == pytest.approx(0.05), "a refusal takes no token"
    assert [buckets.wait("ada", 1000.0) for _ in range(50)] == [0] * 50
    assert buckets.wait("ada", 1000.0) > 0, "a pause fills it, and no more"


# One layer, called directly ------------------------------------------------------------------------------------------


class Calls:
    """An app behind a limiter, and requests to it. Each waits in the app until `go` is set."""

    def __init__(self, limits: Limits) -> None:
        self.limiter = Limiter(self.app, limits)
        self.go = asyncio.Event()
        self.seats: list[bool] = []

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "seat" in scope["state"]:
            self.seats.append(scope["state"]["seat"])
        await self.go.wait()
        await Response()(scope, receive, send)

    async def ask(
        self,
        method: str = "GET",
        path: str = "/v1/jobs",
        user: str = "ada",
        headers: Mapping[str, str] | None = None,
    ) -> int:
        pairs = [(k.encode(), v.encode()) for k, v in (headers or {}).items()]
        scope = {"type": "http", "method": method, "path": path, "headers": pairs}
        scope["state"] = {"principal": Principal(user, user, Role.SUBMITTER)}
        answered = list[Message]()

        async def receive() -> Message:
            return {"type": "http.request"}

        async def send(message: Message) -> None:
            answered.append(message)

        await self.limiter(scope, receive, send)
        return answered[0]["status"]

    async def statuses(self, *calls: Coroutine[Any, Any, int]) -> list[int]:
        """Return the statuses of all requests at once; those that wait are let go."""
        tasks = [asyncio.create_task(call) for call in calls]
        for _ in range(20):
            await asyncio.sleep(0)
        self.go.set()
        return await asyncio.gather(*tasks)


def test_one_caller_has_so_many_requests_at_once() -> None:
    async def story() -> None:
        calls = Calls(Limits(at_once=3))
        mine = [calls.ask() for _ in range(5)]
        assert await calls.statuses(*mine, calls.ask(user="bob")) == [200, 200, 200, 429, 429, 200]
        assert await calls.statuses(calls.ask()) == [200], "answered calls are forgotten"

    asyncio.run(story())


def test_long_polls_have_seats_of_their_own() -> None:
    async def story() -> None:
        calls = Calls(Limits(at_once=1, streams_each=2, streams=5))
        users = ["ada", "ada", "ada", "bob", "bob", "eve", "eve"]
        polls = [calls.ask(path="/v1/follow", user=name) for name in users]
        assert set(await calls.statuses(*polls, calls.ask())) == {200}, "answered without a seat"
        assert calls.seats == [True, True, False, True, True, True, False]

    asyncio.run(story())


def test_bytes_in_flight_are_limited_for_all_callers_together() -> None:
    async def story() -> None:
        calls = Calls(Limits(in_flight=250 << 20))
        large = {"content-length": str(99 << 20)}
        uploads = [calls.ask("PUT", f"/v1/bundles/{n}", f"caller {n}", large) for n in range(8)]
        assert sorted(await calls.statuses(*uploads)) == [200, 200, *[429] * 6]
        again = [calls.ask("PUT", "/v1/bundles/x", "ada", large)]
        assert await calls.statuses(*again) == [200], "what is done is in flight no more"
        chunked = {"transfer-encoding": "chunked"}
        calls.go.clear()
        unknown = [calls.ask("PUT", "/v1/bundles/y", "ada", chunked) for _ in range(3)]
        assert sorted(await calls.statuses(*unknown)) == [200, 200, 429], "counted as the largest"

    asyncio.run(story())


# Over HTTP -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_time_passes")
def test_one_who_asks_too_much_is_refused_and_others_are_not() -> None:
    app = create_app(lambda _: cast(JobsApi, ScriptedJobs()), NamedDoor(ADA, caller("bob")))
    with listening(app) as url:
        ada, bob = ({"x-test-name": name} for name in ("ada", "bob"))
        for served in itertools.count():
            status, headers, body = ask(url, "POST", "/v1/sweep", ada)
            if status != 200:
                assert served >= 50
                break
        assert (status, body["error"]["type"], headers["retry-after"]) == (429, "Busy", "1")
        assert headers["cache-control"] == "no-store"
        assert ask(url, "POST", "/v1/sweep", bob)[0] == 200
        assert ask(url, "GET", "/v1/jobs", ada)[0] == 200


def test_a_bundle_is_refused_before_it_is_sent_and_small_requests_go_on() -> None:
    data = b"b" * (2 << 20)
    sha = hashlib.sha256(data).hexdigest()
    with ExitStack() as stack:
        url = stack.enter_context(
            on_socket(scripted_app(ScriptedJobs(), limits=Limits(in_flight=3 << 20)))
        )
        half = connection_to(url)
        half.putrequest("PUT", f"/v1/bundles/{sha}?bucket=gs://b")
        half.putheader("Content-Length", str(len(data)))
        half.endheaders(data[:1000])
        while ask(url, "PUT", f"/v1/bundles/{sha}?bucket=gs://b", body=data)[0] == 200:
            pass  # until the half that was sent has arrived there
        assert ask(url, "GET", "/v1/jobs")[0] == 200
        half.send(data[1000:])
        assert half.getresponse().status == 200
        half.close()
        assert ask(url, "PUT", f"/v1/bundles/{sha}?bucket=gs://b", body=data)[0] == 200


def test_the_command_line_waits_and_asks_again() -> None:
    waited: list[float] = []
    busy = threading.Event()
    busy.set()

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        busy.clear()

    class OnceBusy(ScriptedJobs):
        def _on_sweep(self, *, dry_run: bool, slice: str = "") -> Any:
            if busy.is_set():
                raise Busy("too much", retry_after=3)
            return self.swept

    with on_socket(scripted_app(OnceBusy())) as url:
        client = RemoteJobs(url)
        client._transport.sleep = sleep
        assert client.sweep()["deleted"] == []
        assert waited == [3]
        busy.set()
        client._transport.busy_timeout = 2
        with pytest.raises(Busy, match="too much"):
            client.sweep()
        assert waited == [3]
        client.close()


# JSON ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [60, 300, 900, 60_000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_a_deeply_nested_spec_is_a_bad_request(depth: int, pair: str) -> None:
    begin = '{"a":' if pair == "{}" else "["
    nested = begin * depth + "1" + pair[1] * depth
    body = b'{"spec": {"name": "x", "run": {"args": {"a": ' + nested.encode() + b"}}}}"
    with on_socket(scripted_app(ScriptedJobs())) as url:
        headers = {"Content-Type": "application/json"}
        for path in ("/v1/jobs", "/v1/plan", "/v1/estimate"):
            status, _, reply = ask(url, "POST", path, headers, body)
            assert (status, reply["error"]["type"]) == (400, "BadRequest"), json.dumps(reply)[:300]
