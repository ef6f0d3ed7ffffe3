"""What the handlers of the JSON API share: the body of a request, and the selection of an answer's fields."""

from __future__ import annotations

from tpujob.emulator.http import Request, Response, json_response
from tpujob.emulator.storage.fields import select
from tpujob.emulator.storage.model import Json, StorageApiError


def answer(request: Request, value: Json, **headers: str) -> Response:
    """A JSON answer, reduced to the `fields` that the client asks for."""
    if "fields" in request.query:
        value = select(request.query["fields"])(value)
    return json_response(value, 200, **headers)


async def json_body(request: Request) -> dict[str, Json]:
    """The request's body, an object; an empty one when there is no body."""
    try:
        return await request.json_object()
    except ValueError as error:
        raise StorageApiError(400, "parseError", str(error)) from error
