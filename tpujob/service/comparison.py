"""Two jobs beside each other: fetches what `service/difference.py` compares."""

from __future__ import annotations

from tpujob.api import ChangeView, DiffSide, DiffView, FileChangeView
from tpujob.domain.model import Job
from tpujob.domain.spec import dump
from tpujob.errors import NotFound
from tpujob.ports import Blobs
from tpujob.service import difference
from tpujob.service.views import code_view

#: seconds to fetch one bundle, of at most 100 MiB
FETCH = 60.0


def compare(a: Job, b: Job, blobs: Blobs, now: float) -> DiffView:
    """What differs from `a` to `b`. A bundle that is gone is told in `files_unknown`; raises Transient, Refused when
    the bucket does not answer."""
    files, unknown, cut = _files(a, b, blobs)
    return DiffView(
        a=_side(a),
        b=_side(b),
        spec=_changes(difference.specs(dump(a.spec), dump(b.spec))),
        outcome=_changes(difference.outcomes(a, b, now)),
        files=files,
        files_unknown=unknown,
        cut=cut,
    )


def _files(a: Job, b: Job, blobs: Blobs) -> tuple[list[FileChangeView], str, bool]:
    # a bundle is named by its content, and lies in the bucket of its job's region
    if [_name(path) for path in a.bundles] == [_name(path) for path in b.bundles]:
        return [], "", False
    try:
        old, new = ([blobs.get(path, timeout=FETCH) for path in job.bundles] for job in (a, b))
        found, cut = difference.files(old, new)
    except NotFound as error:
        return [], f"a bundle is gone: {error.message}", False
    except ValueError as error:
        return [], str(error), False
    shown = [FileChangeView(path=f.path, change=f.kind, diff=f.diff) for f in found]
    return shown, "", cut


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _side(job: Job) -> DiffSide:
    return DiffSide(
        id=job.id,
        name=job.name,
        state=job.state,
        code=code_view(job.code),
        bundles=list(job.bundles),
    )


def _changes(found: list[difference.Change]) -> list[ChangeView]:
    return [ChangeView(key=change.key, a=change.a, b=change.b) for change in found]
