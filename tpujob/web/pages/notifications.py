"""The page of notification channels: where they lead, and whether they work."""

from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response

from tpujob.api import ChannelView, JobsApi
from tpujob.web.live import Address, Fragments, Views
from tpujob.web.pages import frame
from tpujob.web.pages.form import Form
from tpujob.web.routes.caller import Caller, may


def add(app: FastAPI) -> None:
    views: Views = app.state.views

    @frame.page(app, "/notifications")
    def notifications(api: Caller, request: Request) -> Response:
        found, tests = api.channels(), may(api, "test_channel")
        shown = fragments(found, tests, frame.now(app))
        return frame.answer(
            request,
            "notifications.html",
            {"channels": found},
            title="Notifications",
            command="tpujob notifications",
            live=lambda: shown,
            fragments=shown,
            channels_file=app.state.channels_file,
            tests=tests,
        )

    def live(api: JobsApi, at: Address) -> Fragments:
        del at
        return fragments(api.channels(), may(api, "test_channel"), frame.now(app))

    views.add("/notifications", live)

    @app.post("/notifications/test", include_in_schema=False)
    def test(api: Caller, form: Form) -> Response:
        api.test_channel(form.one("channel"))
        return RedirectResponse("../notifications", 303)

    _ = (notifications, test)


def fragments(found: Sequence[ChannelView], tests: bool, now: float) -> Fragments:
    """A row of each channel."""
    made = frame.parts("parts/notifications.html", path="/notifications", now=now)
    rows = {f"channel-{channel['name']}": str(made.row(channel, tests)) for channel in found}
    return Fragments({}, rows, [*rows])
