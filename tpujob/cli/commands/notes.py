"""`tpujob note` and `tpujob tag`: what people write about their jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tpujob.cli.backend import connect
from tpujob.cli.commands.jobs import steer_each
from tpujob.cli.options import JOBS, JobRef, Json, argument, flag
from tpujob.cli.output import say, say_json
from tpujob.cli.render.answers import noted_text, tagged_text

if TYPE_CHECKING:
    from tpujob.api import JobView


def note(
    job: JobRef,
    text: Annotated[
        str | None,
        argument("[TEXT]", "One line; '' removes the note. Default: print it.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Note something about a job, such as what it tries; or print its note."""
    api = connect()
    view = api.get(job) if text is None else api.annotate(job, note=text)
    say_json(view) if as_json else say(noted_text(view))


def tag(
    name: Annotated[str, argument("TAG", "Such as baseline: a-z, 0-9, '.', '_' and '-'.")],
    jobs: Annotated[list[str], JOBS],
    remove: Annotated[bool, flag("Take the tag away.", "--remove", "-r")] = False,
    as_json: Json = False,
) -> int:
    """Tag jobs: `tpujob list --tag` finds them again."""
    api = connect()

    def change(job: str) -> JobView:
        return api.annotate(job, remove=[name]) if remove else api.annotate(job, add=[name])

    return steer_each(jobs, change, as_json, shown=tagged_text)
