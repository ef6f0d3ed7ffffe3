"""`tpujob doctor --probe`: asks before it spends, shows each verdict as it comes, and cleans up however it ends."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tpujob.cli.backend import current_settings, local_stack
from tpujob.cli.errors import FOUND
from tpujob.cli.output import note, say, say_json, screen
from tpujob.cli.render.doctor.probe import end_text, question, result_text
from tpujob.errors import BadRequest, Refused, Transient

if TYPE_CHECKING:
    from tpujob.config.settings import Settings
    from tpujob.doctor.probe.verdicts import Result
    from tpujob.wiring.probe import Wanted


def probe(wanted: Wanted, to: str, *, yes: bool, as_json: bool) -> int:
    """The exit code: FOUND when anything differs, that of Transient when no slice was to be had."""
    from tpujob.doctor.probe.verdicts import Verdict
    from tpujob.wiring import probe as wiring

    now = current_settings()
    if now.local:
        local_stack()
    folder = Path(to or time.strftime("tpujob-probe-%Y%m%d-%H%M%S")).absolute()
    if folder.exists():
        raise BadRequest(f"{folder} is there already", hint="name another folder: --to")
    on = screen()
    last = ""

    def show(result: Result) -> None:
        """Of what could not be tried for one reason only the first is shown."""
        nonlocal last
        again = result.verdict is Verdict.UNTRIED and result.seen == last
        last = result.seen
        if not as_json and not again:
            say(result_text(result, on.columns, color=on.color), flush=True)

    with _ended_by_signals(), _told_what_is_left(now), wiring.prepared(now, wanted, _tell) as ready:
        note(question(ready.context, ready.choice, ready.budget, folder))
        _ask(yes, asks=on.asks)
        report = ready.run(folder, show)
    if as_json:
        said = {"folder": str(folder), "usd": report.usd, "held_s": report.held_s}
        say_json(
            {**said, "left": list(report.left), "results": [asdict(r) for r in report.results]}
        )
    else:
        say(end_text(report, on.columns))
    if report.left:
        raise Refused(
            f"still there, and billed: {', '.join(report.left)}",
            cause="PERMISSION",
            hint="`tpujob sweep` removes it, and so does the next `tpujob doctor --probe`",
        )
    if any(one.verdict is Verdict.DIFFERS for one in report.results):
        return FOUND
    return 0 if report.had_slice else Transient.exit_code


def _tell(text: str) -> None:
    """A remark. That nobody reads them any more is no reason to stop cleaning up."""
    with contextlib.suppress(OSError, ValueError):
        note(text)


@contextlib.contextmanager
def _told_what_is_left(now: Settings) -> Generator[None]:
    """However it ends, and also when the cleaning up was cut off."""
    from tpujob.wiring import probe as wiring

    try:
        yield
    except BaseException:
        for made in wiring.left_over(now):
            _tell(f"{made.run} in {made.zone} may still be there: `tpujob sweep` removes it")
        raise


def _ask(yes: bool, *, asks: bool) -> None:
    if yes:
        return
    if not asks:
        raise BadRequest("there is nobody to ask", hint="tpujob doctor --probe --yes")
    if not typer.confirm("Go on?", err=True):
        raise typer.Abort


@contextlib.contextmanager
def _ended_by_signals() -> Generator[None]:
    """SIGTERM, and the end of the terminal, are as Ctrl-C: what was made is removed."""
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
