"""The page of notification channels: where they lead, and whether they work."""

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from tpujob.api import JobsApi
from tpujob.web.pages.frame import PageContent, PageRequest
from tpujob.web.pages.query import PageQuery
from tpujob.web.routes.caller import may


def load_notifications(asked: PageRequest) -> PageContent:
    shown = {"channels_file": asked.channels_file, "tests": may(asked.api, "test_channel")}
    data = {"channels": asked.api.channels()}
    return PageContent(data, "Notifications", "tpujob notifications", live="", shown=shown)


def test_channel(request: Request, api: JobsApi, form: PageQuery) -> Response:
    """Send a test message, and lead back to the page."""
    del request
    api.test_channel(form.one("channel"))
    return RedirectResponse("../notifications", 303)
