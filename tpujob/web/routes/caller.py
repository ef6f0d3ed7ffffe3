"""What routes take: whoever asks, and the parts of a path."""

from typing import Annotated, cast

from fastapi import Depends, Query, Request

from tpujob.api import JobOrder, JobsApi, ListAsked
from tpujob.domain.pages import PAGE
from tpujob.errors import Forbidden


async def _caller(request: Request) -> JobsApi:
    """What whoever asks may ask of jobs; the door has put the principal there."""
    return request.app.state.jobs(request.scope["state"]["principal"])


Caller = Annotated[JobsApi, Depends(_caller)]


def may(api: JobsApi, method: str) -> bool:
    """Whether the caller's role allows that method for something of their own."""
    try:
        getattr(api, method)
    except Forbidden:
        return False
    return True


JobRef = Annotated[str, "an id (`000042` or `42`) or a unique name"]
#: of the records that one answer has
Limit = Annotated[int, Query(ge=1, le=PAGE)]
Number = Annotated[int | None, Query(ge=0, le=1_000_000)]

#: values of a filter that may be repeated
Several = Annotated[list[str], Query(max_length=100)]
#: rows of a page when nobody says how many
ROWS = 50


def _asked(
    request: Request,
    user: str = "",
    mine: bool = False,
    active: Annotated[
        bool | None, Query(description="true: those that go on; false: those that have ended")
    ] = None,
    recent: Annotated[
        bool, Query(description="those that go on or ended within the last day, active ones first")
    ] = False,
    states: Several = [],  # noqa: B006
    causes: Several = [],  # noqa: B006
    types: Several = [],  # noqa: B006
    zones: Several = [],  # noqa: B006
    text: Annotated[str, Query(description="in the id, the name or the user")] = "",
    order: str = "",
    reverse: bool = False,
    after: Annotated[str, Query(max_length=2000, description="`next` of the page before")] = "",
    limit: Limit = ROWS,
    fields: Annotated[Several, Query(description="of a row, beside its id; left out: all")] = [],  # noqa: B006
) -> ListAsked:
    said = ListAsked(user=user, mine=mine, text=text, order=cast(JobOrder, order), reverse=reverse)
    said |= ListAsked(states=states, causes=causes, types=types, zones=zones, fields=fields)
    said |= ListAsked(after=after, limit=limit)
    if active is not None:
        said["active"] = active
    if recent:
        said["recent"] = True
    # what is no filter is refused where it is known who asks
    others = {name: "" for name in request.query_params if name not in ListAsked.__annotations__}
    return cast(ListAsked, {**others, **said})


#: of a list of jobs, from the query: a name that is repeated asks for any of its values
Asked = Annotated[ListAsked, Depends(_asked)]
