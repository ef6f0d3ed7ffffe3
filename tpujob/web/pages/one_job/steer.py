"""What changes a job: a page for each action that says what happens and what it costs, and the POST that does it.

The page and its form are at one address, `/jobs/{id}/cancel`. Whoever posts without having seen the page changes a job
just as well; the origin of each POST is checked before it comes here.
"""

from typing import get_args

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response

from tpujob.api import ActionName, JobsApi, JobView
from tpujob.errors import BadRequest, Forbidden, IllegalInState
from tpujob.web.pages import frame
from tpujob.web.pages.form import Form
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import Caller

TITLES = {"resume": "Resume", "cancel": "Cancel", "delete": "Delete", "clean": "Clean"}


def add(app: FastAPI) -> None:
    for name in get_args(ActionName):
        _add_one(app, name)


def _add_one(app: FastAPI, name: ActionName) -> None:
    @frame.page(app, f"/jobs/{{job}}/{name}")
    def ask(api: Caller, request: Request, job: str) -> Response:
        """What would happen. Raises IllegalInState when it cannot be done, Forbidden."""
        _ = getattr(api, name)  # refused to whoever may not, whichever job it is
        found = api.get(job)
        Query.read(request.url.query, ())
        offered = next((one for one in found.get("actions", []) if one["name"] == name), None)
        if offered is None:
            (refused,) = (one for one in found.get("refused", []) if one["name"] == name)
            error = Forbidden if refused["forbidden"] else IllegalInState
            raise error(refused["why"], hint=f"`tpujob why {found['id']}` says what comes next.")
        return frame.answer(
            request,
            "job_steer.html",
            {"id": found["id"], "name": found["name"], "state": found["state"], "action": offered},
            title=f"{TITLES[name]} {found['name']}",
            command=f"tpujob {name} {found['id']}",
            job=found,
            verb=TITLES[name],
        )

    @app.post(f"/jobs/{{job}}/{name}", include_in_schema=False)
    def do(api: Caller, request: Request, job: str, said: Form) -> Response:
        steered = _do(api, name, job, said)
        url = frame.link(request, f"/jobs/{steered['id']}")
        return RedirectResponse(url, 303)

    _ = (ask, do)


def _do(api: JobsApi, name: ActionName, job: str, said: Query) -> JobView:
    match name:
        case "resume":
            return api.resume(job, budget=_amount(said.one("budget")))
        case "cancel":
            return api.cancel(job)
        case "delete":
            return api.delete(job)
        case "clean":
            return api.clean(job, checkpoints=bool(said.one("checkpoints")))


def _amount(text: str) -> float | None:
    """US dollars; None: nothing was said."""
    text = text.strip().removeprefix("$").replace(",", "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise BadRequest(f"{text[:40]!r} is not an amount", hint="such as 250 or 12.50") from None
