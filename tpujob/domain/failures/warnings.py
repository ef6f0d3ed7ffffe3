"""What a person should know of an attempt that continues: where its hosts began, and its output folders. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tpujob.domain.model import UnevenStart, Warnings
from tpujob.domain.observations import HostReport
from tpujob.domain.progress import origin
from tpujob.domain.spec.jobspec import KeptFolder
from tpujob.domain.text import many
from tpujob.protocol import Phase

_FROM_0 = ": if host 0 saves for all hosts, add `from: 0` to the folder"


def warnings_of(reports: Sequence[HostReport], outputs: Sequence[KeptFolder]) -> Warnings:
    """Return the warnings that the newest reports of all hosts give; `outputs` are those of the job file."""
    empty, partly = list[str](), list[str]()
    for output in outputs:
        savers = [r for r in reports if r.outputs and output.source in (None, r.host)]
        without = [r for r in savers if r.outputs and output.folder in r.outputs.empty]
        if without and len(without) == len(savers):
            empty.append(output.folder)
        elif any(r.phase == Phase.RUNNING for r in without):
            partly.append(output.folder)
    left_out = sum(r.outputs.left_out for r in reports if r.outputs)
    return Warnings(_uneven_start(reports), left_out, tuple(empty), tuple(partly))


def worth_storing(stored: Warnings, fresh: Warnings) -> bool:
    """Return whether the warnings differ by more than some further files that are left out."""
    more = fresh.left_out >= max(1, 2 * stored.left_out)
    return more or replace(stored, left_out=0) != replace(fresh, left_out=0)


def _uneven_start(reports: Sequence[HostReport]) -> UnevenStart | None:
    """Return two hosts that began differently. None: all began alike, or that is not known yet."""
    if all(r.progress.step is None for r in reports):
        return None
    known = {r.host: step for r in reports if (step := origin(r.progress)) is not None}
    if known and min(known.values()) != max(known.values()):
        ahead, behind = max(known, key=lambda h: known[h]), min(known, key=lambda h: known[h])
        return UnevenStart(ahead, known[ahead], behind, known[behind])
    firsts = {r.progress.first_step for r in reports}
    alike = len(known) == len(reports) or (len(firsts) == 1 and None not in firsts)
    having = [r.host for r in reports if r.outputs and r.outputs.restored]
    without = [r.host for r in reports if r.outputs and not r.outputs.restored]
    if alike or not having or not without:
        return None
    return UnevenStart(having[0], known.get(having[0]), without[0], known.get(without[0]))


def sentences(warnings: Warnings) -> Iterator[str]:
    """Yield a sentence for each warning."""
    if warnings.uneven:
        yield _uneven_text(warnings.uneven)
    for folder in warnings.empty:
        yield f"outputs: {folder} is empty: nothing in it is kept; does the program write to another folder?"
    for folder in warnings.partly:
        yield f"outputs: {folder} is empty on some hosts after a checkpoint{_FROM_0}"
    if warnings.left_out:
        verb = "is" if warnings.left_out == 1 else "are"
        yield f"outputs: {many(warnings.left_out, 'file')} {verb} not kept; the log names them"


def new_sentences(stored: Warnings, fresh: Warnings) -> list[str]:
    """Return the sentences of `fresh` that `stored` does not have."""
    before = set(sentences(stored))
    return [text for text in sentences(fresh) if text not in before]


def _uneven_text(start: UnevenStart) -> str:
    if start.step is None or start.behind_step is None:
        return f"host {start.ahead} got files of `outputs` back and host {start.behind} got none{_FROM_0}"
    behind = f"from step {start.behind_step}" if start.behind_step else "from the beginning"
    return (
        f"the hosts train different steps: host {start.ahead} resumed from step {start.step}, host {start.behind} "
        f"{behind}"
    )
