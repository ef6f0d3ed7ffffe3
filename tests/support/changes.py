"""The changes that one commit may make to a job's record."""

from collections.abc import Iterable, Sequence

from tpujob.domain.invariants import Broken
from tpujob.domain.lifecycle import may_end
from tpujob.domain.model import REFUSALS, Job, Slice, SliceRole

_FIXED = (
    "id",
    "name",
    "user",
    "spec",
    "created_at",
    "bucket",
    "buckets",
    "bundles",
    "code",
    "data",
)


def broken_by(before: Job, after: Job) -> list[Broken]:
    """Return the rules that the change breaks."""
    breaks: list[tuple[str, str]] = []
    if after.version != before.version + 1:
        breaks.append(("I6", f"version {after.version} was written over version {before.version}"))
    for name in _FIXED:
        if getattr(after, name) != getattr(before, name):
            breaks.append(("I6", f"{name} was changed after creation"))
    if len(after.attempts) < len(before.attempts):
        breaks.append(("I6", "an attempt was taken out of the record"))
    for old, new in zip(before.attempts, after.attempts, strict=False):
        changed = (old.outcome, old.cause) != (new.outcome, new.cause)
        if changed and not may_end(old, new.outcome):
            breaks.append(("I6", f"the outcome of attempt {old.number} was overwritten"))
        if (old.number, old.slice) != (new.number, new.slice):
            became = f"attempt {new.number} on {new.slice}"
            breaks.append(("I6", f"attempt {old.number} on {old.slice} became {became}"))
    breaks += _slices_kept(before.slices, after.slices)
    return [Broken(rule, after.id, text) for rule, text in breaks]


def _slices_kept(before: Sequence[Slice], after: Sequence[Slice]) -> Iterable[tuple[str, str]]:
    """Yield violations of the list of slices: only the oldest failed requests that are gone may be removed."""
    still = {s.name: s for s in after}
    refusals = [
        s.name
        for s in before
        if s.gone_at is not None and (s.refused or (s.lost_at is not None and s.ready_at is None))
    ]
    for slice_ in before:
        other = still.get(slice_.name)
        if other is None:
            if slice_.name not in refusals[:-REFUSALS]:
                yield "I6", f"{slice_.name} was taken out of the record"
        elif slice_.gone_at is not None and slice_.gone_at != other.gone_at:
            yield "I6", f"{slice_.name} was gone and is listed again"
        elif slice_.lost_at is not None and other.lost_at != slice_.lost_at:
            yield "I6", f"{slice_.name} lost a race and is wanted again"
        elif slice_.role is SliceRole.CONDEMNED and other.role is not SliceRole.CONDEMNED:
            yield "I6", f"{slice_.name} was condemned and serves again"
