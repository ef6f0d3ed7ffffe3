"""One action for many jobs: a page that names what it does and costs for each, and one that says what became of it."""

from typing import Any, cast, get_args

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.api import ActionName, JobsApi, JobView
from tpujob.domain.text import many
from tpujob.errors import BadRequest, TpujobError
from tpujob.web.pages import frame
from tpujob.web.pages.form import Form
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import Caller

MOST = 100  #: jobs in one confirmation


def add(app: FastAPI) -> None:
    for action in cast("tuple[ActionName, ...]", get_args(ActionName)):
        _add(app, action)


def _add(app: FastAPI, action: ActionName) -> None:
    @frame.page(app, f"/confirm/{action}")
    def confirm(api: Caller, request: Request) -> Response:
        _ = getattr(api, action)  # refused to whoever may not do it at all
        jobs = _named(Query.read(request.url.query, ("job",)))
        found = [_asked(api, action, job) for job in jobs]
        data = {"action": action, "jobs": found}
        going = sum("refused" not in one for one in found)
        title = f"{action.capitalize()} {many(going, 'job')}?"
        return frame.answer(
            request, "confirm.html", data, title=title, command=f"tpujob {action} JOB"
        )

    @app.post(f"/do/{action}", include_in_schema=False)
    def do(api: Caller, request: Request, form: Form) -> Response:
        _ = getattr(api, action)
        results = [_done(api, action, job) for job in _named(form)]
        failed = sum(not one["done"] for one in results)
        title = f"{action.capitalize()}: {many(len(results) - failed, 'job')}"
        data = {"action": action, "results": results}
        return frame.answer(request, "done.html", data, title=title)

    _ = (confirm, do)


def _named(given: Query) -> list[str]:
    jobs = list(dict.fromkeys(given.many("job")))
    if not jobs:
        raise BadRequest(
            "no job was selected", hint="Select rows of the list, then choose what to do."
        )
    if len(jobs) > MOST:
        raise BadRequest(f"{MOST} jobs at most at a time")
    return jobs


def _asked(api: JobsApi, action: ActionName, job: str) -> dict[str, Any]:
    """What it would do to that job; `refused` says why it would not."""
    try:
        view = api.get(job)
    except TpujobError as error:
        return {"id": job, "name": "", "refused": error.message}
    about = {"id": view["id"], "name": view["name"], "user": view["user"], "state": view["state"]}
    for offer in view.get("actions", ()):
        if offer["name"] == action:
            needed = [ask["does"] for ask in offer["asks"] if ask["needed"]]
            if needed:  # a page of one job asks for it
                return {**about, "refused": f"{needed[0]}: do it on its own page"}
            return {**about, "does": offer["does"], "costs": offer["costs"]}
    return {**about, "refused": _why_not(view, action)}


def _why_not(view: JobView, action: ActionName) -> str:
    return next((one["why"] for one in view.get("refused", ()) if one["name"] == action), "")


def _done(api: JobsApi, action: ActionName, job: str) -> dict[str, Any]:
    try:
        view: JobView = getattr(api, action)(job)
    except TpujobError as error:
        return {"id": job, "name": "", "done": False, "said": error.message, "hint": error.hint}
    told = view.get("next")
    said = told["text"] if told else view["message"]
    about = {"id": view["id"], "name": view["name"], "state": view["state"]}
    return {**about, "done": True, "said": said, "hint": ""}
