"""What a page is asked for in its address: read once, and written into every link that changes one part of it.
The fields of a form are read in the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated
from urllib.parse import parse_qs, urlencode

from fastapi import Depends, Request

from tpujob.errors import BadRequest

URLENCODED = "application/x-www-form-urlencoded"
MOST = 4000  #: characters of a query
FIELDS = 200  #: of a query or a form


class PageQuery:
    """The parts of an address's query: each name with its values. What is empty is left out."""

    def __init__(self, parts: Mapping[str, Sequence[str]]) -> None:
        self._parts = {name: tuple(filter(None, values)) for name, values in parts.items()}

    @classmethod
    def read(cls, text: str, known: Sequence[str]) -> PageQuery:
        """Parse an address's query. Raises BadRequest for unknown names: a misspelled filter must not look like one
        that is applied."""
        if len(text) > MOST:
            raise BadRequest("the query of the address is too long")
        found = cls.of(text)
        strange = sorted(set(found._parts) - set(known))
        if strange:
            raise BadRequest(
                f"unknown filter {', '.join(strange)[:200]!r}",
                hint=f"There are: {', '.join(known)}.",
            )
        return found

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
        """Return the same with other values; an empty one removes the name."""
        given = {
            name: (value,) if isinstance(value, str) else value for name, value in changes.items()
        }
        return PageQuery({**self._parts, **given})

    def __bool__(self) -> bool:
        """Whether anything is asked for."""
        return any(self._parts.values())

    def __str__(self) -> str:
        """Return it as a link to the same page."""
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
