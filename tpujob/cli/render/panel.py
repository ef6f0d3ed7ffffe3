"""The live panel of a followed job: state, slice, hosts, attempt, progress, cost and the last events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel as Box
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tpujob.cli.output import Screen
from tpujob.cli.render import words
from tpujob.cli.render.lines import STATE_STYLE, progress_line
from tpujob.cli.render.text import clock
from tpujob.domain.text import clean, rate, seconds, span, usd

if TYPE_CHECKING:
    from tpujob.api import EventView, JobView, SliceView

EVENTS = 8  #: lines of history


class Panel:
    """A sink that redraws a panel in place on a terminal. The last picture stays when the panel ends."""

    def __init__(self, screen: Screen, list_price: float | None) -> None:
        self._console = Console(no_color=not screen.color, highlight=False, markup=False)
        self._live = Live(console=self._console, auto_refresh=False)
        self._list_price = list_price
        self._lines: deque[tuple[str, str, str]] = deque(maxlen=EVENTS)
        self._job: JobView | None = None

    def __enter__(self) -> Panel:
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.__exit__(None, None, None)

    def show(self, job: JobView, fresh: Sequence[EventView], now: float) -> None:
        for event in fresh:
            if event["kind"] != "progressed":  # the bar shows it
                self._lines.append((clock(event["at"]), event["state"], clean(event["text"])))
        self._job = job
        self._draw(now)

    def remark(self, text: str, now: float) -> None:
        self._lines.append((time.strftime("%H:%M:%S", time.localtime(now)), "", text))
        self._draw(now)

    def _draw(self, now: float) -> None:
        if self._job is not None:
            body = picture(self._job, list(self._lines), now, self._list_price)
            self._live.update(body, refresh=True)


def picture(
    job: JobView, lines: Sequence[tuple[str, str, str]], now: float, list_price: float | None
) -> Box:
    """Return the panel. Its height does not change with the job's state, so that nothing jumps."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(no_wrap=True, overflow="ellipsis")
    facts.add_row("state", _state(job, now))
    facts.add_row("slice", clean(_slice(job)))
    facts.add_row("hosts", clean(_hosts(job)))
    facts.add_row("attempt", clean(_attempt(job)))
    facts.add_row("step", _progress(job))
    facts.add_row("cost", _cost(job, list_price))
    history = Table.grid(padding=(0, 2), expand=True)
    history.add_column(style="dim", width=8)
    history.add_column(width=12)
    history.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for at, state, text in [*lines, *[("", "", "")] * (EVENTS - len(lines))]:
        history.add_row(at, Text(state, style=STATE_STYLE.get(state, "bold")), text)
    title = Text(f"job {clean(job['id'])}  {clean(job['name'])}", style="bold")
    return Box(Group(facts, Text(""), history), title=title, title_align="left")


def _state(job: JobView, now: float) -> Text:
    state_since = None if words.is_active_group(job) else seconds(job["state_since"])
    duration = f" for {span(now - state_since)}" if state_since is not None else ""
    state = Text(clean(job["state"]), style=STATE_STYLE.get(job["state"], ""))
    return state.append(duration, style="dim")


def _slice(job: JobView) -> str:
    held = _billed_slice(job)
    if held is None:
        return "none"
    kind = f"{held['name']}  {held['pricing']} {words.kind(held)} in {held['zone']}"
    condemned = [name for name in job["condemned"] if name != held["name"]]
    if held["role"] == "condemned":
        return f"{kind}  {held['role']}"
    return f"{kind}  (and {', '.join(condemned)}, condemned)" if condemned else kind


def _billed_slice(job: JobView) -> SliceView | None:
    """Return the serving slice; without one, a slice that is still billed."""
    held = [slice for slice in job["slices"] if not slice["gone_at"]]
    serving = [slice for slice in held if slice["role"] == "serving"]
    return (serving or held or [None])[-1]


def _hosts(job: JobView) -> str:
    held = _billed_slice(job)
    addresses = held["hosts"] if held else []
    if not addresses:
        return f"{job['hosts']} asked for" if held else "none"
    rest = f"  … {len(addresses) - 4} more" if len(addresses) > 4 else ""
    return "  ".join(f"{i}: {ip}" for i, ip in enumerate(addresses[:4])) + rest


def _attempt(job: JobView) -> str:
    if not job["attempts"]:
        return "none yet"
    last = job["attempts"][-1]
    resumed_from = last["resumed_from"]
    phase = f"  {job['phase']}" if job["phase"] else ""
    end = f"  {last['outcome']} {last['cause'] or ''}" if last["outcome"] else phase
    resumed = f"  resumed from step {resumed_from}" if resumed_from else ""
    return f"{last['number']}{end}{resumed}"


def _progress(job: JobView) -> Table | Text:
    step, steps = job["step"], job["steps"]
    if step is None:
        return Text(progress_line(job) or "-", style="dim")
    facts = f"{step}/{steps}" if steps else str(step)
    if loss := words.loss(job):
        facts += f"  loss {loss}"
    if job["checkpoint"] is not None:
        facts += f"  checkpoint {job['checkpoint']}"
    row = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=steps, completed=min(step, steps), width=18) if steps else Text("")
    row.add_row(bar, Text(facts, no_wrap=True, overflow="ellipsis"))
    return row


def _cost(job: JobView, list_price: float | None) -> str:
    current = rate(job["usd_per_hour"])
    waits = job["state"] in ("queued", "provisioning") and not job["usd_per_hour"]
    coming = f" ({rate(list_price)} with its slice)" if waits and list_price else ""
    return f"{current} now{coming}  {usd(job['usd_spent'])} so far"
