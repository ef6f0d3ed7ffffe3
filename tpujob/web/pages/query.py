"""Queries of pages: parsed once, and written into every link that changes one part. Fields of forms are parsed
alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated
from urllib.parse import parse_qs, urlencode

from fastapi import Depends, Request

from tpujob.errors import BadRequest

URLENCODED = "application/x-www-form-urlencoded"
MAX_QUERY = 4000  #: characters of a query
FIELDS = 200  #: of a query or a form


class PageQuery:
    """The names of a query with their values. Empty values are left out."""

    def __init__(self, parts: Mapping[str, Sequence[str]]) -> None:
        self._parts = {name: tuple(filter(None, values)) for name, values in parts.items()}

    @classmethod
    def read(cls, text: str, allowed: Sequence[str]) -> PageQuery:
        """Parse an address's query. Raises BadRequest for unknown names: a misspelled filter must not look like one
        that is applied."""
        if len(text) > MAX_QUERY:
            raise BadRequest("the query of the address is too long")
        query = cls.of(text)
        strange = sorted(set(query._parts) - set(allowed))
        if strange:
            raise BadRequest(
                f"unknown filter {', '.join(strange)[:200]!r}",
                hint=f"There are: {', '.join(allowed)}.",
            )
        return query

    @classmethod
    def of(cls, text: str) -> PageQuery:
        """Parse a query or a form as it is sent. Raises BadRequest."""
        try:
            return cls(parse_qs(text, max_num_fields=FIELDS))
        except ValueError:
            raise BadRequest(f"more than {FIELDS} fields") from None

    def one(self, name: str, otherwise: str = "") -> str:
        return next(iter(self.many(name)), otherwise)

    def many(self, name: str) -> tuple[str, ...]:
        return self._parts.get(name, ())

    def but(self, **changes: str | Sequence[str]) -> PageQuery:
        """Return the query with other values; an empty value removes the name."""
        new_parts = {
            name: (value,) if isinstance(value, str) else value for name, value in changes.items()
        }
        return PageQuery({**self._parts, **new_parts})

    def __bool__(self) -> bool:
        """Return whether the query has any value."""
        return any(self._parts.values())

    def __str__(self) -> str:
        """Return the query as a link to the same page."""
        return "?" + urlencode({n: v for n, v in self._parts.items() if v}, doseq=True)


async def _form(request: Request) -> PageQuery:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != URLENCODED:
        raise BadRequest(f"the form must be {URLENCODED}")
    try:
        return PageQuery.of((await request.body()).decode())
    except UnicodeDecodeError:
        raise BadRequest("the form is not UTF-8") from None


#: the fields of the form in the request's body
Form = Annotated[PageQuery, Depends(_form)]
