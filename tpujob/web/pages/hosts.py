"""Hosts: machines that are suspected of wrong numbers, and what people said of them."""

from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response

from tpujob.api import JobsApi, SuspectView
from tpujob.errors import BadRequest
from tpujob.web.live import Address, Fragments, Views, same_role
from tpujob.web.pages import frame
from tpujob.web.pages.form import Form
from tpujob.web.routes.caller import Caller

#: what a button says, and the verdict that it stands for
VERDICTS = {"good": "good", "bad": "bad", "unpin": ""}


def add(app: FastAPI) -> None:
    views: Views = app.state.views

    @frame.page(app, "/hosts")
    def hosts(api: Caller, request: Request) -> Response:
        found = api.hosts()
        return frame.answer(
            request,
            "hosts.html",
            {"hosts": found},
            title="Hosts",
            command="tpujob hosts",
            live=lambda: fragments(found, frame.now(app)),
        )

    def live(api: JobsApi, at: Address) -> Fragments:
        del at
        return fragments(api.hosts(), frame.now(app))

    views.add("/hosts", live, audience=same_role)

    @app.post("/hosts", include_in_schema=False)
    def judge(api: Caller, form: Form) -> Response:
        _ = api.pin_host  # refused to whoever may not, whatever they send
        machine, said = form.one("machine"), form.one("do")
        if said == "clear":
            api.clear_host(machine)
        elif said in VERDICTS:
            api.pin_host(machine, VERDICTS[said])
        else:
            ways = ", ".join((*VERDICTS, "clear"))
            raise BadRequest(f"a machine cannot be {said[:40]!r}", hint=f"There are: {ways}.")
        return RedirectResponse("hosts", 303)  # relative: it holds below a session, too

    _ = (hosts, judge)


def fragments(found: Sequence[SuspectView], now: float) -> Fragments:
    """A row of each machine."""
    made = frame.parts("parts/hosts.html", path="/hosts", now=now)
    rows = {f"host-{one['physical']}": str(made.row(one)) for one in found}
    return Fragments({}, rows, [*rows])
