"""Runs the probes in order, writes each one's answers down, and removes what they made on every way out.

What `kill -9` leaves behind is in `record.py`; whoever probes or sweeps next removes it with `remove`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tpujob.doctor.probe.cloud import SERVICE_OFF, Answer, ProbedCloud
from tpujob.doctor.probe.probing import Probing, pause
from tpujob.doctor.probe.record import Made, Records
from tpujob.doctor.probe.redact import Redactor
from tpujob.doctor.probe.table import Probe
from tpujob.doctor.probe.verdicts import Judged, Result, UntriedError, Verdict
from tpujob.domain.model import Slice
from tpujob.domain.observations import Absent
from tpujob.errors import StoreError, TpujobError
from tpujob.ports import Clock

#: seconds to remove what was made, and for one call of that
REMOVING, ONE_CALL = 900.0, 30.0
#: seconds after which a request that got no answer has arrived, or never will
SETTLED = 20.0
#: of each sentence in the summary: an answer may be long, and is in the file
MOST_TEXT = 600


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has come to."""

    results: Sequence[Result]
    folder: Path
    usd: float  #: by list price; an estimate
    held_s: float
    had_slice: bool
    left: Sequence[str]  #: names of slices that could not be removed


def run(
    probing: Probing,
    records: Records,
    made: Made,
    folder: Path,
    redactor: Redactor,
    show: Callable[[Result], None],
    probes: Sequence[Probe],
) -> Report:
    """Try every probe; call with the lock of `records`. Raises KeyboardInterrupt and other errors after everything is
    removed, or after saying what is left."""
    results: list[Result] = []
    left: list[str] = []
    _make(folder)
    records.keep(made)  # before anything is made
    try:
        for number, probe in enumerate(probes, 1):
            result = _tried(probe, probing, folder / f"{number:02}-{probe.id}.json", redactor)
            results.append(result)
            show(result)
    finally:
        names = {name: name in probing.unsure for name in probing.begun}
        if names:
            probing.say("removing what was made ...")
        left = remove(probing.cloud, made, names, probing.clock, probing.say, probing.poll)
        if not left:
            records.drop(made)
        held = probing.held_s()
        usd = probing.budget.usd(held)
        report = Report(results, folder, usd, held, probing.had_slice, left)
        _summarize(report, made)
    return report


def remove(
    cloud: ProbedCloud,
    made: Made,
    names: Mapping[str, bool],
    clock: Clock,
    say: Callable[[str], None],
    poll: float,
) -> list[str]:
    """Delete the slices of these names, and look until they are gone, at least every `poll` seconds; then the keys and
    objects of the run. With each name, whether its request may still be on its way: then its absence has to last.
    Returns the names of what is still there, or cannot be seen. Safe to repeat; never raises for an answer of the
    cloud."""
    left = {slice.name: slice for slice in made.slices() if slice.name in names}
    seen = {name for name, unsure in names.items() if not unsure}
    began, why = clock.now(), ""
    until = began + REMOVING
    while left:
        for name, slice in list(left.items()):
            answer = _removed(cloud, slice)
            if answer is None:
                if name in seen or clock.now() - began >= SETTLED:
                    del left[name]
                continue
            seen.add(name)
            why = "it is being deleted" if answer.ok else answer.said
            if answer.read_as == SERVICE_OFF:
                until = 0.0  # nothing will be answered within our time
        if not left or clock.now() >= until:
            break
        clock.sleep(pause(clock.now() - began, poll))
    for slice in made.slices():
        if slice.name in left:
            say(f"{slice.name} in {slice.zone} may still be there, and is billed: {why}")
        else:
            _try(lambda slice=slice: cloud.forget(slice))
    if made.workdir and not _try(lambda: cloud.clear(made.workdir, timeout=ONE_CALL)):
        say(f"objects below {made.workdir} could not be removed")
    return sorted(left)


def _removed(cloud: ProbedCloud, slice: Slice) -> Answer | None:
    """None: it is gone; else the answer to its deletion."""
    if isinstance(cloud.look(slice, timeout=ONE_CALL), Absent):
        return None
    return cloud.delete(slice, timeout=ONE_CALL)


def _tried(probe: Probe, probing: Probing, file: Path, redactor: Redactor) -> Result:
    probing.answers.clear()
    probing.say(f"{probe.id} ...")
    began = probing.clock.now()
    try:
        if probing.off:
            raise UntriedError(probing.off)
        judged = probe.look(probing)
    except UntriedError as error:
        judged = Judged(Verdict.UNTRIED, "", str(error))
    except TpujobError as error:
        judged = Judged(Verdict.UNTRIED, "", error.message)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # an answer of another form than any that is known: kept, and told
        judged = Judged(Verdict.DIFFERS, "an answer of the known form", repr(error))
    seconds = probing.clock.now() - began
    result = Result(
        probe.id,
        judged.verdict,
        redactor.text(judged.expected)[:MOST_TEXT],
        redactor.text(judged.seen)[:MOST_TEXT],
        probe.settles,
        round(seconds, 1),
        file.name,
    )
    _write(file, {**asdict(result), "answers": redactor.json(probing.answers)})
    return result


def _summarize(report: Report, made: Made) -> None:
    """`summary.json` and `summary.txt`."""
    from tpujob.version import __version__

    facts = {
        "tpujob": __version__,
        "type": made.type,
        "zone": made.zone,
        "usd": round(report.usd, 4),
        "held_s": round(report.held_s, 1),
        "left": len(report.left),
    }
    _write(
        report.folder / "summary.json", {**facts, "results": [asdict(r) for r in report.results]}
    )
    lines = [f"{key}: {value}" for key, value in facts.items()]
    for one in report.results:
        lines += ["", f"{one.verdict}  {one.probe}  ({one.seconds:.1f} s, {one.file})"]
        lines += [f"  expected: {one.expected}"] * bool(one.expected)
        lines += [f"  seen: {one.seen}", *(f"  settles: {text}" for text in one.settles)]
    _put(report.folder / "summary.txt", "\n".join(lines) + "\n")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise StoreError(f"{folder} is there already", hint="name another folder: --to") from None
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {error.strerror}", hint="--to") from error


def _write(file: Path, value: Any) -> None:
    _put(file, json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def _put(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error.strerror}") from error


def _try(act: Callable[[], object]) -> bool:
    try:
        act()
    except TpujobError:
        return False
    return True
