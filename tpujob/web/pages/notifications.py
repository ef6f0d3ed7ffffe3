"""Where people are told what happened, what was sent there, and what a person can do about it."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.api import DeliveryView, JobsApi
from tpujob.errors import BadRequest
from tpujob.web.live import Address, Fragments, Views
from tpujob.web.pages import frame
from tpujob.web.pages.form import Form
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import Caller, may

ROWS = 50
KNOWN = ("channel", "before")


def add(app: FastAPI) -> None:
    views: Views = app.state.views

    @frame.page(app, "/notifications")
    def notifications(api: Caller, request: Request) -> Response:
        _ = api.channels  # refused to whoever may not see them, whatever they ask for
        asked = Query.read(request.url.query, KNOWN)
        found, may = _found(api, asked), _may(api)
        shown = fragments(found, may, asked, frame.now(app))
        channel = asked.one("channel")
        command = f"tpujob notifications list{f' --channel {channel}' if channel else ''}"
        return frame.answer(
            request,
            "notifications.html",
            found,
            title="Notifications",
            command=command,
            live=not asked.one("before") and (lambda: shown),
            fragments=shown,
            asked=asked,
            channels_file=app.state.channels_file,
            **may,
        )

    def live(api: JobsApi, at: Address) -> Fragments:
        asked = Query.read(at.query, KNOWN)
        return fragments(_found(api, asked), _may(api), asked, frame.now(app))

    views.add("/notifications", live)

    @app.post("/notifications/test", include_in_schema=False)
    def test(api: Caller, request: Request, form: Form) -> Response:
        tests = api.test_channel
        return _result(request, "Test", tests(_given(form, "channel")))

    @app.post("/notifications/replay", include_in_schema=False)
    def replay(api: Caller, request: Request, form: Form) -> Response:
        replays = api.replay
        return _result(request, "Replay", replays(_given(form, "id")))

    _ = (notifications, test, replay)


def fragments(
    found: Mapping[str, Any], may: Mapping[str, bool], asked: Query, now: float
) -> Fragments:
    """As the page shows them when it is loaded, and from there on."""
    if not found["channels"]:
        return Fragments()
    made = frame.parts("parts/notifications.html", path="/notifications", now=now)
    rows = {one["id"]: str(made.row(one, may["replays"])) for one in found["deliveries"]}
    parts = {"channels-all": str(made.channels({**found, **may, "asked": asked}))}
    if rows:
        parts["pager"] = frame.pager(asked, found["next"], "messages", path="/notifications")
    return Fragments(parts, rows, [*rows])


def _found(api: JobsApi, asked: Query) -> dict[str, Any]:
    """Channels, and a page of messages."""
    channel, before = asked.one("channel"), asked.one("before")
    found = api.deliveries(channel=channel, before=before, limit=ROWS)
    last = found[-1]["id"] if len(found) == ROWS else ""
    return {"channels": api.channels(), "deliveries": found, "next": last}


def _may(api: JobsApi) -> dict[str, bool]:
    return {"tests": may(api, "test_channel"), "replays": may(api, "replay")}


def _result(request: Request, what: str, found: DeliveryView) -> Response:
    said = {"sent": "it was delivered", "failed": "it was not delivered"}
    title = f"{what}: {said.get(found['state'], 'it will be tried again')}"
    return frame.answer(request, "delivery.html", {"delivery": found}, title=title)


def _given(form: Query, name: str) -> str:
    """Raises BadRequest."""
    if found := form.one(name):
        return found
    raise BadRequest(f"the form has no {name}", hint="Load the page again.")
