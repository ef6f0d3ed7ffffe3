"""The pages about the lab as a whole: capacity, machines, events of all jobs, notifications, and the backend."""

import shlex

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from tpujob.api import JobsApi, QueueRow
from tpujob.domain.events import EventKind
from tpujob.errors import BadRequest
from tpujob.service.authorization import may
from tpujob.web.pages.frame import PageContent, PageRequest, link
from tpujob.web.pages.query import PageQuery

#: of the buttons beside a machine, and the verdict that each stands for
VERDICTS = {"good": "good", "bad": "bad", "unpin": ""}
QUEUE_ROWS = 200  #: that are shown


def load_capacity(request: PageRequest) -> PageContent:
    """Load the hardware that jobs hold and wait for, quota and refusals of the cloud; on demand, leaked slices."""
    looks = bool(request.query.one("leaks"))
    left_over = request.api.leaks() if looks else None  # which asks the cloud, in every zone
    return PageContent(
        {"quota": None, **request.api.capacity(), "left_over": left_over},
        "Capacity",
        "tpujob leaks" if looks else "tpujob capacity",
        live=None if looks else "",
        shown={"may_look": may(request.caller, "leaks")},
    )


def load_queue(request: PageRequest) -> PageContent:
    """Load the jobs that wait for a slice, by requested hardware, and the use of each share."""
    queue = request.api.queue(limit=QUEUE_ROWS)
    by_shape: dict[str, list[QueueRow]] = {}
    for row in queue["rows"]:
        slices = f"{row['tpu_slices']} × " if row["tpu_slices"] > 1 else ""
        where = ", ".join(row["zones"][:4]) or "any zone"
        where += " …" if len(row["zones"]) > 4 else ""
        by_shape.setdefault(f"{slices}{row['type']} {row['pricing']} in {where}", []).append(row)
    return PageContent(
        {**queue, "shares": request.api.shares()},
        "Queue",
        "tpujob queue",
        live="",
        shown={
            "shapes": list(by_shape.items()),
            "shown": sum(1 + row["alike"] for row in queue["rows"]),
        },
    )


def load_hosts(request: PageRequest) -> PageContent:
    """Load the machines that are suspected, and the marks that people gave them."""
    return PageContent({"hosts": request.api.hosts()}, "Hosts", "tpujob hosts", live="")


def judge_host(request: Request, api: JobsApi, form: PageQuery) -> Response:
    """Mark a machine, or forget it."""
    machine, verdict = form.one("machine"), form.one("do")
    if verdict == "clear":
        api.clear_host(machine)
    elif verdict in VERDICTS:
        api.pin_host(machine, VERDICTS[verdict])
    else:
        ways = ", ".join((*VERDICTS, "clear"))
        raise BadRequest(f"a machine cannot be {verdict[:40]!r}", hint=f"There are: {ways}.")
    return RedirectResponse(link(request, "/hosts"), 303)


def load_events(request: PageRequest) -> PageContent:
    """Load the events of all jobs, the newest first; no kind is hidden."""
    kinds, before = request.query.many("kind"), request.query.one("before")
    options = " ".join(f"--kind {shlex.quote(kind)}" for kind in kinds)
    return PageContent(
        {**request.api.happened(before=before, kinds=kinds)},
        "Events",
        f"tpujob events {options}".rstrip(),
        live=None if before else "",
        shown={"asked": request.query, "kinds": list(EventKind)},
    )


def load_backend(request: PageRequest) -> PageContent:
    """Load the state of the control loop, the backend's platform, and its problems."""
    return PageContent({**request.api.health()}, "Backend", "tpujob status", live="")


def load_notifications(request: PageRequest) -> PageContent:
    shown = {"channels_file": request.channels_file, "tests": may(request.caller, "test_channel")}
    data = {"channels": request.api.channels()}
    return PageContent(data, "Notifications", "tpujob notifications", live="", shown=shown)


def test_channel(request: Request, api: JobsApi, form: PageQuery) -> Response:
    """Send a test message and redirect to the page of notifications."""
    api.test_channel(form.one("channel"))
    return RedirectResponse(link(request, "/notifications"), 303)
