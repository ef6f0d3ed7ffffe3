"""`tpujob show`: everything about one job on one page. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from tpujob.cli.render import words
from tpujob.cli.render.lines import LABEL, elapsed, event_line, job_title, labelled, progress_line
from tpujob.cli.render.queue_page import place_facts
from tpujob.cli.render.text import clip, clock, paint, width, wrap
from tpujob.domain.text import clean, many, number, rate, seconds, span, usd

if TYPE_CHECKING:
    from tpujob.api import AttemptView, EventView, JobView, ProofView, SliceView


def job_page(
    job: JobView,
    events: Sequence[EventView],
    columns: int,
    now: float,
    *,
    color: bool = False,
    last: int = 8,
) -> str:
    """`tpujob show`: all facts, and what happens next."""
    lasted = "" if words.is_going_group(job) else f" for {span(elapsed(job['state_since'], now))}"
    out = [job_title(job, color) + lasted, ""]
    for label, text in _facts(job, now):
        out += labelled(label, text, columns, color)
    if job["slices"]:
        out += ["", paint("Slices", "bold", color)]
        out += [
            line for s in job["slices"] if not _fruitless(s) for line in _slice(s, job, columns)
        ]
        out += _requests(job, columns)
    if job["attempts"]:
        out += ["", paint("Attempts", "bold", color)]
        for n, attempt in enumerate(job["attempts"]):
            out += _attempt(attempt, job["attempts"][:n], columns, now, color)
    if events:
        out += ["", paint("Last events", "bold", color)]
        out += [event_line(event, columns, color=color) for event in events[-last:]]
    return "\n".join(out)


def _facts(job: JobView, now: float) -> list[tuple[str, str]]:
    hosts = many(job["hosts"], "host")
    hardware = f"{words.kind(job)}: {many(job['chips'], 'chip')} on {hosts}{words.topology(job)}"
    metrics = (f"{name} {number(value)}" for name, value in job["metrics"].items())
    return [
        ("Now", words.now(job)),
        ("Trouble", words.trouble(job)),
        ("Ignored", words.ignored(job)),
        ("Upcoming", words.maintenance(job, now)),
        ("Next", words.what_next(job, now)),
        ("Swap", words.condemned(job)),
        ("Element", words.element(job)),
        ("Elements", words.elements(job)),
        *(("Failed" if not n else "", text) for n, text in enumerate(words.worst(job))),
        ("Best", words.best(job)),
        ("Progress", progress_line(job) if job["step"] is not None else ""),
        ("Metrics", ", ".join(metrics)),
        ("TPU", f"{hardware}, {job['pricing']}, {job['zone'] or 'no zone yet'}"),
        ("Cost", words.cost(job)),
        ("Budget", words.spending(job)),
        ("User", job["user"]),
        ("Workdir", job["workdir"]),
        ("Code", words.code(job["code"]) if job["code"] else ""),
        ("Created", f"{span(elapsed(job['created_at'], now))} ago, {clock(job['created_at'])}"),
        ("Outcome", " ".join(filter(None, (job["outcome"], job["cause"])))),
    ]


def _fruitless(slice: SliceView) -> bool:
    """Whether the request never became a slice."""
    return bool(slice["gone_at"] and not slice["ready_at"])


def _requests(job: JobView, columns: int) -> list[str]:
    """Return the requests that failed, in one line, as there may be many."""
    zones = Counter(slice["zone"] for slice in job["slices"] if _fruitless(slice))
    if not zones:
        return []
    places = ", ".join(f"{zone} {n}" for zone, n in zones.items())
    return [clip(f"  {many(zones.total(), 'request')} failed: {clean(places)}", columns)]


def _slice(slice: SliceView, job: JobView, columns: int) -> list[str]:
    if slice["gone_at"]:
        state = "gone"
    elif slice["ready_at"]:
        state = "held" if slice["role"] == "serving" else slice["role"]
    else:
        state = "asked for"
    cost = f"{usd(slice['usd'])} at {rate(slice['usd_per_hour'])}"
    if slice["gone_at"] and slice["ready_at"] and slice["usd_per_hour"] and not slice["usd"]:
        cost += ": preempted in its first minute, which is free"
    name, kind = clean(slice["name"]), f"{slice['pricing']} {words.kind(slice)} in {slice['zone']}"
    line = f"  {name}  {state:9}  {clean(kind)}"
    out = [f"{line}  {cost}"]
    if width(out[0]) > columns:
        out = [clip(line, columns), *(f"    {more}" for more in wrap(cost, max(20, columns - 4)))]
    if of := words.slice_jobs(slice, job["id"]):
        out += [f"    {line}" for line in wrap(f"handed on: {of}", max(20, columns - 4))]
    if slice["hosts"] and not slice["gone_at"]:
        out.append(clip(f"    hosts  {_by_host(slice['hosts'])}", columns))
        machines = [host["physical"] for host in job.get("on_hosts", [])]
        if slice["role"] == "serving" and any(machines):
            out.append(clip(f"    machines  {_by_host(machines)}", columns))
        if slice.get("host_keys") == "first-contact":
            out.append(
                clip("    keys   trusted at the first contact: the hosts published none", columns)
            )
    return out


def _by_host(names: Sequence[str]) -> str:
    """The first eight, each after the number of its host."""
    shown = "  ".join(f"{i}: {clean(name) or '?'}" for i, name in enumerate(names[:8]))
    return f"{shown}  … {len(names) - 8} more" if len(names) > 8 else shown


def _attempt(
    attempt: AttemptView, before: Sequence[AttemptView], columns: int, now: float, color: bool
) -> list[str]:
    began, ended = seconds(attempt["started_at"]), seconds(attempt["ended_at"])
    took = span((ended if ended is not None else now) - began) if began is not None else "?"
    end = words.end_of(attempt)
    steps = words.steps_of(attempt)
    lasted = "after" if ended is not None else "for"
    head = f"  {attempt['number']}  {end} {lasted} {took} on {attempt['slice']}{steps}"
    out = [clip(clean(head), columns)]
    if attempt["message"] and attempt["outcome"] != "succeeded":
        out += [f"     {line}" for line in wrap(clean(attempt["message"]), max(20, columns - 5))]
    for text in filter(None, (words.verdict_of(attempt), words.cut_off(attempt))):
        out += [f"     {line}" for line in wrap(clean(text), max(20, columns - 5))]
    proved = (a["number"] for a in before if a["evidence"] == attempt["evidence"] != [])
    if same := next(proved, None):
        return [*out, "     " + paint(f"| the same as attempt {same}", "dim", color)]
    return out + proof(attempt, columns, color=color, indent=5)


def proof(
    attempt: AttemptView, columns: int, *, color: bool, indent: int, most: int = 24
) -> list[str]:
    """The lines that prove an attempt's cause, wrapped: at most `most`, the last of which says that there are more."""
    room = max(20, columns - indent - 2)
    lines = [line for quote in attempt["evidence"] for line in _quoted(quote, room)]
    if len(lines) > most:
        first = _telling(attempt, room, most - 1)
        lines = [*lines[first : first + most - 1], "  … `tpujob show` has all of it"]
    return [" " * indent + paint(line, "dim", color) for line in lines]


def _quoted(quote: ProofView, room: int) -> list[str]:
    host = "" if quote["host"] is None else f"host {quote['host']}: "
    parts = wrap(host + clean(quote["text"]), room)
    return [f"{'| ' if n == 0 else '  '}{clip(part, room)}" for n, part in enumerate(parts)]


def _telling(attempt: AttemptView, room: int, most: int) -> int:
    """The first line to show when there is no room for all. The host that failed first comes first, and the end of its
    output says most; a stack, which proves a hang, begins with its innermost frame."""
    if attempt["cause"] == "HANG":
        return 0
    host = attempt["evidence"][0]["host"]
    own = takewhile(lambda quote: quote["host"] == host, attempt["evidence"])
    return max(0, sum(len(_quoted(quote, room)) for quote in own) - most)


# Why -----------------------------------------------------------------------------------------------------------------


LATELY, PROOF = 3, 5  #: events, and lines of evidence
STILL = 300.0  #: seconds without a new step that are worth a line


def why_page(
    job: JobView, events: Sequence[EventView], columns: int, now: float, *, color: bool = False
) -> str:
    """State, since when, the last cause and its evidence, what is tried again, retries, money, what comes next."""
    since = f" since {clock(job['state_since'])}, {span(elapsed(job['state_since'], now))}"
    out = [job_title(job, color) + ("" if words.is_going_group(job) else since), ""]
    for label, text in _reasons(job, now):
        out += labelled(label, text, columns, color)
    retries = "" if job["state"] == "succeeded" else _retries(job)
    ended = [a for a in job["attempts"] if a["outcome"] and a["outcome"] != "succeeded"]
    if ended and job["state"] != "succeeded":
        last = ended[-1]
        out += labelled("Last end", _ended(job, last, now), columns, color)
        out += labelled("Verdict", words.verdict_of(last), columns, color)
        out += labelled("Cure", words.cut_off(last), columns, color)
        out += proof(last, columns, color=color, indent=LABEL + 2, most=PROOF)
    for label, text in (
        ("Retries", retries),
        ("Cost", words.cost(job)),
        ("Budget", words.spending(job)),
        ("Next", words.what_next(job, now)),
    ):
        out += labelled(label, text, columns, color)
    if events:
        out += ["", paint("Recent events", "bold", color)]
        out += [event_line(event, columns, color=color) for event in events[-LATELY:]]
    return "\n".join(out)


def _reasons(job: JobView, now: float) -> list[tuple[str, str]]:
    place = job.get("place")
    in_queue = place is not None and bool(place["reasons"] or place["position"])
    has_reason = place is not None and job.get("why") in [one["text"] for one in place["reasons"]]
    queued = (job["waiting"] or job.get("copying") or has_reason) and job["state"] == "queued"
    reasons = [
        ("Now", "" if queued else words.now(job)),
        ("Data", (job.get("copying") or {}).get("said", "")),
        *(place_facts(place, now) if in_queue else ()),
        ("Waiting", job["waiting"]),
        ("Answer", capacity["said"] if (capacity := job.get("capacity")) else ""),
        ("Swap", words.condemned(job)),
        ("Trouble", words.trouble(job)),
        ("Upcoming", words.maintenance(job, now)),
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
    if age > STILL:
        stall = f"; stall at {limit}" if limit else ""
        return [line, ("Stuck", f"no new step for {span(age)}{stall}")]
    return [line, ("Moving", f"newest step {span(age)} ago")]


def _without_steps(job: JobView, limit: str) -> str:
    """Say what counts as progress for a program that has reported no step, as many never do."""
    watch: dict[str, object] = job["spec"].get("watch") or {}
    if job["phase"] or watch.get("progress"):
        return "no step reported yet" + (f"; {limit} without progress is a hang" if limit else "")
    hang = f"; {limit} without either is a hang" if limit else ""
    return f"this program reports no steps: its output and CPU time count instead{hang}"


def _ended(job: JobView, attempt: AttemptView, now: float) -> str:
    """Without the attempt's message where the job's own is about the same end."""
    ago = f", {span(elapsed(attempt['ended_at'], now))} ago" if attempt["ended_at"] else ""
    text = f"attempt {attempt['number']}: {words.end_of(attempt)}{ago}"
    since_then = attempt["ended_at"] == job["state_since"]
    known = since_then or (job["state"] == "failed" and job["cause"] == attempt["cause"])
    return text if known or not attempt["message"] else f"{text}: {attempt['message']}"


def _retries(job: JobView) -> str:
    """Return the retries that end the job when they are used up."""
    bounded = [one for one in job.get("budgets", ()) if one["limit"] is not None]
    return "; ".join(
        f"{one['name']}: {one['used']} used, {one['left']} left"
        if one["limit"]
        else f"{one['name']}: no retry is allowed"
        for one in bounded
    )
