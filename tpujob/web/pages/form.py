"""What a person sends with a form."""

from typing import Annotated

from fastapi import Depends, Request

from tpujob.errors import BadRequest
from tpujob.web.pages.query import Query

URLENCODED = "application/x-www-form-urlencoded"


async def _form(request: Request) -> Query:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != URLENCODED:
        raise BadRequest(f"the form must be {URLENCODED}")
    try:
        return Query.of((await request.body()).decode())
    except UnicodeDecodeError:
        raise BadRequest("the form is not UTF-8") from None


#: the fields of the form in the request's body
Form = Annotated[Query, Depends(_form)]
