"""Actions on one or many jobs: a page that shows an action's effect and cost, and the POST that carries it out.

The page of one job and its form have the same address, `/jobs/{id}/cancel`. A POST needs no earlier visit of the page;
its origin has been checked by the middleware.
"""

from typing import Any, cast, get_args

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from tpujob.api import ActionName, JobsApi, JobView
from tpujob.domain.text import many
from tpujob.errors import BadRequest, Forbidden, IllegalInState, TpujobError
from tpujob.web.pages.frame import PageContent, PageRequest, link, respond
from tpujob.web.pages.query import PageQuery

MAX_JOBS = 100  #: jobs in one confirmation
ACTIONS = cast("tuple[ActionName, ...]", get_args(ActionName))


def load_confirmation(action: ActionName, request: PageRequest) -> PageContent:
    jobs = [_describe(request.api, action, job) for job in _job_ids(request.query)]
    count = sum("refused" not in job for job in jobs)
    title = f"{action.capitalize()} " + (f"{many(count, 'job')}?" if count else "is not possible")
    words = " ".join(["tpujob", action, *(job["id"] for job in jobs if "refused" not in job)])
    return PageContent({"action": action, "jobs": jobs}, title, words if count else "")


def act_on_all(action: ActionName, request: Request, api: JobsApi, form: PageQuery) -> Response:
    """Carry the action out for each of the jobs, and show the results."""
    results = [_act_on_one(api, action, job) for job in _job_ids(form)]
    title = f"{action.capitalize()}: {many(sum(result['done'] for result in results), 'job')}"
    return respond(request, "done.html", PageContent({"action": action, "results": results}, title))


def _job_ids(query: PageQuery) -> list[str]:
    jobs = list(dict.fromkeys(query.many("job")))
    if not jobs:
        raise BadRequest(
            "no job was selected", hint="Select rows of the list, then choose what to do."
        )
    if len(jobs) > MAX_JOBS:
        raise BadRequest(f"{MAX_JOBS} jobs at most at a time")
    return jobs


def _describe(api: JobsApi, action: ActionName, job: str) -> dict[str, Any]:
    """Return the effect of the action on that job, or why it is refused, under `refused`."""
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
    reasons = (refusal["why"] for refusal in view.get("refused", ()) if refusal["name"] == action)
    return {**about, "refused": next(reasons, "")}


def _act_on_one(api: JobsApi, action: ActionName, job: str) -> dict[str, Any]:
    try:
        view: JobView = getattr(api, action)(job)
    except TpujobError as error:
        return {"id": job, "name": "", "done": False, "text": error.message, "hint": error.hint}
    following = view.get("next")
    text = following["text"] if following else view["message"]
    about = {"id": view["id"], "name": view["name"], "state": view["state"]}
    return {**about, "done": True, "text": text, "hint": ""}


# One job -------------------------------------------------------------------------------------------------------------


def load_action(name: ActionName, request: PageRequest) -> PageContent:
    """Describe the action. Raises IllegalInState when it is not possible, Forbidden."""
    job = request.api.get(request.job)
    offer = next((offer for offer in job.get("actions", []) if offer["name"] == name), None)
    if offer is None:
        (refused,) = (refusal for refusal in job.get("refused", []) if refusal["name"] == name)
        error = Forbidden if refused["forbidden"] else IllegalInState
        raise error(refused["why"], hint=f"`tpujob why {job['id']}` says what comes next.")
    verb = name.capitalize()
    return PageContent(
        {"id": job["id"], "name": job["name"], "state": job["state"], "action": offer},
        f"{verb} {job['name']}",
        f"tpujob {name} {job['id']}",
        shown={"job": job, "verb": verb},
    )


def act(name: ActionName, request: Request, api: JobsApi, form: PageQuery) -> Response:
    """Carry the action out and redirect to the job's page, or to the list if the job was cleaned."""
    job = _do(api, name, request.path_params["job"], form)
    to = "/" if name == "clean" else f"/jobs/{job['id']}"
    return RedirectResponse(link(request, to), 303)


def _do(api: JobsApi, name: ActionName, job: str, form: PageQuery) -> JobView:
    match name:
        case "resume":
            return api.resume(job, budget=_amount(form.one("budget")))
        case "cancel":
            return api.cancel(job)
        case "delete":
            return api.delete(job)
        case "clean":
            return api.clean(job, checkpoints=bool(form.one("checkpoints")))


def _amount(text: str) -> float | None:
    """Return US dollars; None if the field is empty."""
    text = text.strip().removeprefix("$").replace(",", "")
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise BadRequest(f"{text[:40]!r} is not an amount", hint="such as 250 or 12.50") from None
