"""Authorization of a caller: methods by their role, any job by its id, their own jobs by name.

`api/jobs_api.py` has the rule of each method; every method that takes a job looks it up here.
"""

import hashlib
import re

from tpujob.api import METHODS
from tpujob.domain import access
from tpujob.domain.access import Principal
from tpujob.domain.model import Job
from tpujob.errors import BadRequest, Forbidden, NotFound
from tpujob.lib import log_context
from tpujob.ports import Store

#: methods after which something is gone
_LOSES = ("delete", "clean")
#: by what is asked for; `tick`, a pass over every job, is no method of `JobsApi`
RULES = {name: row.rule for name, row in METHODS.items()} | {"tick": access.ADMINS}


def authorize(caller: Principal, method: str) -> None:
    """Raise Forbidden unless the caller's role allows the method, at least for their own jobs."""
    access.check(caller, method, RULES.get(method), _action(method))


def may(caller: Principal, method: str) -> bool:
    """Return whether `authorize` allows it."""
    try:
        authorize(caller, method)
    except Forbidden:
        return False
    return True


def check_owner(caller: Principal, method: str, job: Job) -> None:
    """Raises Forbidden unless the caller may call the method for that job."""
    access.check_owner(caller, method, RULES.get(method), _action(method), job.id, job.owner)


def _action(method: str) -> str:
    """Return what users know the method as: its command."""
    return f"`{METHODS[method].asked_by}`" if method in METHODS else method


def find_job(store: Store, caller: Principal, method: str, job: str) -> Job:
    """Return any job by its id, or the caller's own by its name, for that method. Raises NotFound, BadRequest;
    Forbidden when the caller may not call it for that job."""
    if re.fullmatch(r"[0-9]{1,9}", job):
        record = store.get(job.zfill(6))
    else:
        record = _named(store, caller, job, any_state=method in _LOSES)
    log_context.note(job=record.id)
    check_owner(caller, method, record)
    return record


def own_key(caller: Principal, key: str) -> str:
    """Return the key bound to its owner, so that guessing a key does not reach another user's job."""
    return hashlib.sha256(f"{caller.id}\0{key}".encode()).hexdigest() if key else ""


def _named(store: Store, caller: Principal, name: str, *, any_state: bool) -> Job:
    """Return the job with that name, unique among the caller's live jobs, or else among all of theirs; with
    `any_state`, among all of theirs, so that a live job is not taken for one that has ended."""
    matches = store.list(name=name) if name else []  # no name would be any name
    mine = [j for j in matches if access.is_own(caller, j.owner)]
    live = [j for j in mine if not j.state.final]
    named = mine if any_state else live or mine
    if len(named) == 1:
        return named[0]
    if not named:
        raise NotFound(
            f"no job of yours is called {name!r}",
            hint="`tpujob list --all` shows every job; another user's needs its id.",
        )
    ids = ", ".join(j.id for j in named[:10])
    raise BadRequest(f"{len(named)} jobs are called {name!r}: {ids}", hint="Use the id.")
