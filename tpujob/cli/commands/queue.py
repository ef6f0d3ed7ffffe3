"""`tpujob queue` and `tpujob shares`: which job gets a slice next, and why another one waits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from tpujob.cli.backend import connect, retrying_client
from tpujob.cli.commands.jobs import expand_ranges, steer_each
from tpujob.cli.options import Json, Watch, argument, complete_job, option
from tpujob.cli.output import Screen, get_screen, say, say_json, say_page
from tpujob.cli.render.queue_page import queue_page, shares_page
from tpujob.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from tpujob.api import JobsApi, QueueView

VERBS = ("top", "hold", "release", "requeue")
ROWS = 50  #: default of --limit


def queue(
    words: Annotated[
        list[str] | None,
        argument(
            "[top|hold|release|requeue] [JOB...]",
            "Ids or unique names. Default: all jobs that wait.",
            autocompletion=complete_job,
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None, option("N", f"Maximum number; 0: all. Default: {ROWS}.", min=0)
    ] = None,
    watch: Watch = False,
    as_json: Json = False,
) -> int:
    """Show which job gets a slice next, and why another one waits.

    top moves jobs before your other ones. hold keeps jobs from starting until release. requeue stops a running job,
    which then waits for a slice again."""
    jobs = words or []
    if jobs and jobs[0] in VERBS:
        if watch or limit is not None:
            raise BadRequest(f"{jobs[0]} goes without --watch and --limit")
        return _steer(jobs[0], jobs[1:], as_json)

    retrying = retrying_client()

    def ask(api: JobsApi) -> QueueView:
        return api.queue(jobs=jobs, limit=ROWS if limit is None else limit)

    def text(view: QueueView, screen: Screen) -> str:
        if jobs and not view["rows"]:
            return "None of them is in the queue. `tpujob why JOB` explains the state of one."
        shares = () if jobs else retrying.ask(lambda api: api.shares())
        return queue_page(view, screen.columns, now=time.time(), shares=shares, color=screen.color)

    if watch:
        from tpujob.cli.live_display import watch_table

        watch_table(ask, text, lambda view: view, as_json=as_json)
    try:
        view = retrying.ask(ask)
    except NotFound as error:
        error.hint += f"\nThe first word can be {', '.join(VERBS)}; all others name jobs."
        raise
    say_json(view) if as_json else say(text(view, get_screen()))
    return 0


def _steer(verb: str, jobs: list[str], as_json: bool) -> int:
    if not jobs:
        raise BadRequest(
            f"which jobs? `tpujob queue {verb}` needs one", hint="`tpujob queue` shows them."
        )
    api = connect()
    if verb == "top":  # each job moves before the last one, so the first named job goes last
        jobs = expand_ranges(jobs)[::-1]
    return steer_each(jobs, getattr(api, verb), as_json)


def shares(as_json: Json = False) -> None:
    """Show what each share and its owners have used lately."""
    say_page(retrying_client().ask(lambda api: api.shares()), shares_page, as_json)
