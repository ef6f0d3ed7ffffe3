"""`tpujob show` and `tpujob why`: one job on one page. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from tpujob.cli.render import words
from tpujob.cli.render.lines import LABEL, elapsed, event_line, job_title, labelled, progress_line
from tpujob.cli.render.queue_page import place_facts
from tpujob.cli.render.text import clip, clock, paint, width, wrap, wrap_indented
from tpujob.domain.text import clean, many, rate, seconds, span, usd

if TYPE_CHECKING:
    from tpujob.api import AttemptView, EventView, JobView, ProofView, SliceView


LAST_EVENTS = 8  #: events on the page of `tpujob show`


def job_page(
    job: JobView, events: Sequence[EventView], columns: int, now: float, *, color: bool = False
) -> str:
    """Return the page of `tpujob show`: all facts, and what happens next."""
    lasted = "" if words.is_active_group(job) else f" for {span(elapsed(job['state_since'], now))}"
    out = [job_title(job, color) + lasted, ""]
    for label, text in _facts(job, now):
        out += labelled(label, text, columns, color)
    if job["slices"]:
        out += ["", paint("Slices", "bold", color)]
        for slice in job["slices"]:
            out += [] if _never_ready(slice) else _slice_lines(slice, job, columns)
        out += _failed_requests(job, columns)
    if job["attempts"]:
        out += ["", paint("Attempts", "bold", color)]
        for n, attempt in enumerate(job["attempts"]):
            out += _attempt_lines(attempt, job["attempts"][:n], columns, now, color)
    if events:
        out += ["", paint("Last events", "bold", color)]
        out += [event_line(event, columns, color=color) for event in events[-LAST_EVENTS:]]
    return "\n".join(out)


def _facts(job: JobView, now: float) -> list[tuple[str, str]]:
    hosts = many(job["hosts"], "host")
    hardware = f"{words.kind(job)}: {many(job['chips'], 'chip')} on {hosts}{words.topology(job)}"
    return [
        ("Now", words.reason(job)),
        ("Warning", words.loss_warning(job)),
        ("Trouble", words.trouble(job, now)),
        ("Warning", "; ".join(job.get("warnings", ()))),
        ("Ignored", words.ignored(job)),
        ("Upcoming", words.maintenance(job, now)),
        ("Ends", words.planned_end(job, now)),
        ("Next", words.what_next(job, now)),
        ("Swap", words.condemned(job)),
        ("Race", words.race(job["candidates"])),
        ("Element", words.element(job)),
        ("Elements", words.elements(job)),
        *(("Failed" if not n else "", text) for n, text in enumerate(words.worst(job))),
        ("Best", words.best(job)),
        ("Progress", progress_line(job) if job["step"] is not None else ""),
        ("Metrics", words.metrics(job)),
        ("TPU", f"{hardware}, {job['pricing']}, {job['zone'] or 'no zone yet'}"),
        ("Cost", words.cost(job)),
        ("Budget", words.spending(job)),
        ("Deadline", words.deadline(job)),
        ("User", job["user"]),
        ("Note", job.get("note", "")),
        ("Tags", ", ".join(job.get("tags", ()))),
        ("Workdir", job["workdir"]),
        ("Code", words.code(job["code"]) if job["code"] else ""),
        ("Created", f"{span(elapsed(job['created_at'], now))} ago, {clock(job['created_at'])}"),
        ("Outcome", " ".join(filter(None, (job["outcome"], job["cause"])))),
    ]


def _never_ready(slice: SliceView) -> bool:
    """Return whether the request for a slice ended before the slice was ready."""
    return bool(slice["gone_at"] and not slice["ready_at"])


def _failed_requests(job: JobView, columns: int) -> list[str]:
    """Return a line that counts the failed requests, as there may be many."""
    zones = Counter(slice["zone"] for slice in job["slices"] if _never_ready(slice))
    if not zones:
        return []
    places = ", ".join(f"{zone} {count}" for zone, count in zones.items())
    return [clip(f"  {many(zones.total(), 'request')} failed: {clean(places)}", columns)]


def _slice_lines(slice: SliceView, job: JobView, columns: int) -> list[str]:
    if slice["gone_at"]:
        state = "gone"
    elif slice["ready_at"]:
        state = "held" if slice["role"] == "serving" else slice["role"]
    else:
        state = "asked for"
    cost = f"{usd(slice['usd'])} at {rate(slice['usd_per_hour'])}"
    if slice.get("free"):
        cost += ": preempted in its first minute, which is free"
    elif unsure := slice.get("unsure_usd"):
        cost += f", {usd(unsure)} of it uncertain: it was lost while no poll saw it"
    kind = clean(f"{slice['pricing']} {words.kind(slice)} in {slice['zone']}")
    line = f"  {clean(slice['name'])}  {state:9}  {kind}"
    out = [f"{line}  {cost}"]
    if width(out[0]) > columns:
        out = [clip(line, columns), *wrap_indented(cost, columns, 4)]
    if jobs := words.slice_jobs(slice, job["id"]):
        out += wrap_indented(f"handed on: {jobs}", columns, 4)
    if slice["hosts"] and not slice["gone_at"]:
        out.append(clip(f"    hosts  {_names_by_host(slice['hosts'])}", columns))
        machines = [host["physical"] for host in job.get("on_hosts", [])]
        if slice["role"] == "serving" and any(machines):
            out.append(clip(f"    machines  {_names_by_host(machines)}", columns))
        if slice.get("host_keys") == "first-contact":
            text = "    keys   trusted at the first contact: the hosts published none"
            out.append(clip(text, columns))
    return out


def _names_by_host(names: Sequence[str]) -> str:
    """Return the first eight names, each after the number of its host."""
    shown = "  ".join(f"{i}: {clean(name) or '?'}" for i, name in enumerate(names[:8]))
    return f"{shown}  … {len(names) - 8} more" if len(names) > 8 else shown


def _attempt_lines(
    attempt: AttemptView, before: Sequence[AttemptView], columns: int, now: float, color: bool
) -> list[str]:
    started, ended = seconds(attempt["started_at"]), seconds(attempt["ended_at"])
    duration = "?" if started is None else span((now if ended is None else ended) - started)
    lasted = f"for {duration}" if ended is None else f"after {duration}"
    head = f"  {attempt['number']}  {words.end_of(attempt)} {lasted} on {attempt['slice']}"
    out = [clip(clean(head + words.steps_of(attempt)), columns)]
    plain = attempt["outcome"] == "succeeded" and not attempt.get("last_error")
    message = "" if plain else attempt["message"]
    for text in filter(None, (message, words.verdict_of(attempt), words.firewall_hint(attempt))):
        out += wrap_indented(text, columns, 5)
    for earlier in before:
        if earlier["evidence"] == attempt["evidence"] != []:
            same = f"| the same as attempt {earlier['number']}"
            return [*out, "     " + paint(same, "dim", color)]
    return out + _evidence_lines(attempt, columns, color=color, indent=5, limit=24)


def _evidence_lines(
    attempt: AttemptView, columns: int, *, color: bool, indent: int, limit: int
) -> list[str]:
    """Return at most `limit` lines that prove an attempt's cause; the last line says if there are more."""
    room = max(20, columns - indent - 2)
    lines = [line for quote in attempt["evidence"] for line in _quote_lines(quote, room)]
    if len(lines) > limit:
        first = _first_line(attempt, room, limit - 1)
        lines = [*lines[first : first + limit - 1], "  … `tpujob show` has all of it"]
    return [" " * indent + paint(line, "dim", color) for line in lines]


def _quote_lines(quote: ProofView, room: int) -> list[str]:
    host = "" if quote["host"] is None else f"host {quote['host']}: "
    parts = wrap(host + clean(quote["text"]), room)
    return [f"{'| ' if n == 0 else '  '}{clip(part, room)}" for n, part in enumerate(parts)]


def _first_line(attempt: AttemptView, room: int, limit: int) -> int:
    """Return the index of the first line to show when only `limit` fit: the last lines of the host that failed first.
    A stack, which proves a hang, begins with its innermost frame, so its first lines are shown."""
    if attempt["cause"] == "HANG":
        return 0
    host = attempt["evidence"][0]["host"]
    of_host = takewhile(lambda quote: quote["host"] == host, attempt["evidence"])
    return max(0, sum(len(_quote_lines(quote, room)) for quote in of_host) - limit)


# Why -----------------------------------------------------------------------------------------------------------------


RECENT_EVENTS = 3
EVIDENCE_LINES = 5
STUCK_AFTER = 300.0  #: seconds without a new step after which the page says so


def why_page(
    job: JobView, events: Sequence[EventView], columns: int, now: float, *, color: bool = False
) -> str:
    """Return the page of `tpujob why`: state, reasons, the last end and its evidence, retries, cost, next step."""
    since = f" since {clock(job['state_since'])}, {span(elapsed(job['state_since'], now))}"
    out = [job_title(job, color) + ("" if words.is_active_group(job) else since), ""]
    for label, text in _reasons(job, now):
        out += labelled(label, text, columns, color)
    failed = [a for a in job["attempts"] if a["outcome"] and a["outcome"] != "succeeded"]
    if failed and job["state"] != "succeeded":
        last = failed[-1]
        out += labelled("Last end", _last_end(job, last, now), columns, color)
        out += labelled("Verdict", words.verdict_of(last), columns, color)
        out += labelled("Cure", words.firewall_hint(last), columns, color)
        out += _evidence_lines(last, columns, color=color, indent=LABEL + 2, limit=EVIDENCE_LINES)
    for label, text in (
        ("Retries", "" if job["state"] == "succeeded" else _retries_left(job)),
        ("Cost", words.cost(job)),
        ("Budget", words.spending(job)),
        ("Deadline", words.deadline(job)),
        ("Next", words.what_next(job, now)),
    ):
        out += labelled(label, text, columns, color)
    if events:
        out += ["", paint("Recent events", "bold", color)]
        out += [event_line(event, columns, color=color) for event in events[-RECENT_EVENTS:]]
    return "\n".join(out)


def _reasons(job: JobView, now: float) -> list[tuple[str, str]]:
    place = job.get("place")
    reasons_in_queue = [reason["text"] for reason in place["reasons"]] if place else []
    in_queue = place and (reasons_in_queue or place["position"])
    explained = job["waiting"] or job.get("copying") or job.get("why") in reasons_in_queue
    reasons = [
        ("Now", "" if explained and job["state"] == "queued" else words.reason(job)),
        ("Data", (job.get("copying") or {}).get("text", "")),
        *(place_facts(place, now) if place and in_queue else ()),
        ("Waiting", job["waiting"]),
        ("Answer", capacity["answer"] if (capacity := job.get("capacity")) else ""),
        ("Swap", words.condemned(job)),
        ("Race", words.race(job["candidates"])),
        ("Warning", words.loss_warning(job)),
        ("Trouble", words.trouble(job, now)),
        ("Warning", "; ".join(job.get("warnings", ()))),
        ("Upcoming", words.maintenance(job, now)),
        ("Ends", words.planned_end(job, now)),
    ]
    if (job["state"] == "running" and job["attempts"]) or job["step"] is not None:
        reasons += _progress(job, now)
    return reasons


def _progress(job: JobView, now: float) -> list[tuple[str, str]]:
    age = elapsed(job["progress_at"], now)
    limit = span(job["stall_s"]) if job["stall_s"] else ""
    if job["step"] is None:
        return [("Progress", _without_steps(job, limit))]
    line = ("Progress", progress_line(job, bar=10))
    if age is None:
        return [line]
    if age > STUCK_AFTER:
        stall = f"; stall at {limit}" if limit else ""
        return [line, ("Stuck", f"no new step for {span(age)}{stall}")]
    return [line, ("Moving", f"newest step {span(age)} ago")]


def _without_steps(job: JobView, limit: str) -> str:
    """Say what counts as progress for a program that has reported no step, as many never do."""
    watch: dict[str, object] = job["spec"].get("watch") or {}
    if job["phase"] or watch.get("progress") or watch.get("trainer") not in (None, "off"):
        return "no step reported yet" + (f"; {limit} without progress is a hang" if limit else "")
    hang = f"; {limit} without either is a hang" if limit else ""
    return f"no step reported yet: output and CPU time count until then{hang}"


def _last_end(job: JobView, attempt: AttemptView, now: float) -> str:
    """Say how the attempt ended; without its message where the job's message is about the same end."""
    ago = f", {span(elapsed(attempt['ended_at'], now))} ago" if attempt["ended_at"] else ""
    text = f"attempt {attempt['number']}: {words.end_of(attempt)}{ago}"
    ended_job = job["state"] == "failed" and job["cause"] == attempt["cause"]
    if not attempt["message"] or ended_job or attempt["ended_at"] == job["state_since"]:
        return text
    return f"{text}: {attempt['message']}"


def _retries_left(job: JobView) -> str:
    """Say how many retries of each bounded kind are left."""
    texts: list[str] = []
    for budget in job.get("budgets", ()):
        if budget["limit"]:
            texts.append(f"{budget['name']}: {budget['used']} used, {budget['left']} left")
        elif budget["limit"] == 0:
            texts.append(f"{budget['name']}: no retry is allowed")
    return "; ".join(texts)
