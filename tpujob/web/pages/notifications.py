"""Where people are told what happened, what was sent there, and what a person can do about it."""

from fastapi import Request
from fastapi.responses import Response

from tpujob.api import DeliveryView, JobsApi
from tpujob.errors import BadRequest
from tpujob.web.pages.frame import PageContent, PageRequest, respond
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import may

ROWS = 50
FILTERS = ("channel", "before")


def load_notifications(asked: PageRequest) -> PageContent:
    api, query = asked.api, asked.query
    channel, before = query.one("channel"), query.one("before")
    deliveries = api.deliveries(channel=channel, before=before, limit=ROWS)
    last = deliveries[-1]["id"] if len(deliveries) == ROWS else ""
    return PageContent(
        {"channels": api.channels(), "deliveries": deliveries, "next": last},
        "Notifications",
        f"tpujob notifications list{f' --channel {channel}' if channel else ''}",
        live=None if before else "",
        shown={
            "asked": query,
            "channels_file": asked.channels_file,
            "tests": may(api, "test_channel"),
            "replays": may(api, "replay"),
        },
    )


def test_channel(request: Request, api: JobsApi, form: Query) -> Response:
    return _show_result(request, "Test", api.test_channel(_field(form, "channel")))


def replay(request: Request, api: JobsApi, form: Query) -> Response:
    return _show_result(request, "Replay", api.replay(_field(form, "id")))


def _show_result(request: Request, what: str, delivery: DeliveryView) -> Response:
    results = {"sent": "it was delivered", "failed": "it was not delivered"}
    title = f"{what}: {results.get(delivery['state'], 'it will be tried again')}"
    return respond(request, "delivery.html", PageContent({"delivery": delivery}, title))


def _field(form: Query, name: str) -> str:
    """Raises BadRequest."""
    if value := form.one(name):
        return value
    raise BadRequest(f"the form has no {name}", hint="Load the page again.")
