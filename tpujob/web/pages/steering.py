"""What changes a job: a page for each action that says what happens and what it costs, and the POST that does it.

The page and its form are at one address, `/jobs/{id}/cancel`. A POST needs no visit of the page before; its origin is
checked before it comes here.
"""

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from tpujob.api import ActionName, JobsApi, JobView
from tpujob.errors import BadRequest, Forbidden, IllegalInState
from tpujob.web.pages.frame import PageContent, PageRequest, link
from tpujob.web.pages.query import PageQuery


def load_action(name: ActionName, asked: PageRequest) -> PageContent:
    """What would happen. Raises IllegalInState when it cannot be done, Forbidden."""
    job = asked.api.get(asked.job)
    offer = next((offer for offer in job.get("actions", []) if offer["name"] == name), None)
    if offer is None:
        (refused,) = (one for one in job.get("refused", []) if one["name"] == name)
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
    """Do it, and lead back to the page of the job."""
    job = _do(api, name, request.path_params["job"], form)
    return RedirectResponse(link(request, f"/jobs/{job['id']}"), 303)


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
