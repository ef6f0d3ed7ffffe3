"""Which pages are live, and what of them is shared between viewers."""

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.routing import compile_path

from tpujob.api import JobsApi
from tpujob.domain.access import Principal
from tpujob.errors import BadRequest, NotFound
from tpujob.newest import Newest
from tpujob.web.live.fragments import Fragments, Kept, Snapshot, as_loaded, digest_in


@dataclass(frozen=True, slots=True)
class Address:
    """Of a page, without what the whole lies under."""

    path: str
    query: str  #: as it was written, without its question mark
    parts: Mapping[str, str]  #: of the path, by the names in its pattern
    kept: Kept = field(default_factory=Kept)  #: what a view of the page has made already


#: of one page, in a thread: what the caller may ask, and which page
Render = Callable[[JobsApi, Address], Fragments]
#: who sees the same page as whom
Audience = Callable[[Principal, Address], Hashable]

LONGEST = 2000  #: characters of a view's address
LOADED = 500  #: pages that were loaded last, of which is known what they show: some kB each


def nobody_else(who: Principal, at: Address) -> Hashable:
    """Each caller sees something else."""
    del at
    return who.id, who.name, who.role


def same_role(who: Principal, at: Address) -> Hashable:
    """All who may do the same see the same."""
    del at
    return who.role


class Asked(NamedTuple):
    """A view: the fragments of one page, for all who see the same."""

    key: Hashable
    render: Callable[[], Fragments]
    job: str  #: the id of the only job that it shows; empty: it may depend on any


class _Page(NamedTuple):
    pattern: str
    render: Render
    job: str
    audience: Audience


class Views:
    """The pages that are live."""

    def __init__(self, jobs: Callable[[Principal], JobsApi]) -> None:
        self._jobs = jobs
        self._pages: list[_Page] = []
        self._loading = threading.Lock()
        self._loaded: Newest[str, Snapshot] = Newest(LOADED)

    def add(
        self,
        pattern: str,
        render: Render,
        *,
        job: str = "",
        audience: Audience = nobody_else,
    ) -> None:
        """The pages at these paths, such as `/jobs/{id}`, are live; each page module says so once. `job`: which part of
        the path names the only job that the page depends on."""
        self._pages.append(_Page(pattern, render, job, audience))

    def find(self, view: str, who: Principal) -> Asked:
        """What `path?query` is to that caller. Raises NotFound, BadRequest."""
        if len(view) > LONGEST:
            raise BadRequest(f"a view has at most {LONGEST} characters")
        try:
            parts = urlsplit(view)
        except ValueError:
            raise BadRequest(f"{view[:200]!r} is no address of a page") from None
        for page in self._pages:
            found = compile_path(page.pattern)[0].match(parts.path)
            if found:
                return self._asked(page, Address(parts.path, parts.query, found.groupdict()), who)
        raise NotFound(f"{parts.path[:200]} is no live page", hint="/ lists the jobs.")

    def loaded(self, shown: Fragments) -> str:
        """A page that shows this is sent now. Returns the id with which its first stream gets only what differs."""
        state = as_loaded(shown)
        with self._loading:
            self._loaded[state.id] = state
        return state.id

    def as_loaded(self, event_id: str) -> Snapshot | None:
        """What the page with that id showed when it was loaded; None: it is not known any more."""
        with self._loading:
            return self._loaded.get(digest_in(event_id))

    def _asked(self, page: _Page, at: Address, who: Principal) -> Asked:
        api, number = self._jobs(who), at.parts.get(page.job, "")
        # a job that is called by its name may be another one tomorrow
        job = number.zfill(6) if number.isdecimal() else ""
        key = at.path, at.query, page.audience(who, at)

        def render() -> Fragments:
            made = page.render(api, at)
            at.kept.turn()
            return made

        return Asked(key, render, job)
