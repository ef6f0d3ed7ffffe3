"""The end of a program after a notice of its cloud, and what it saved before that. Pure."""

from collections.abc import Sequence

from tpujob.contract import DONE, Exit
from tpujob.domain.failures.evidence import ending, proof
from tpujob.domain.failures.nonfinite import not_kept, reported_loss
from tpujob.domain.model import Cause, End, Outcome, Progress, Proof
from tpujob.domain.observations import HostReport
from tpujob.domain.progress import common_checkpoint
from tpujob.protocol import MAINTENANCE


def notice_of(reports: Sequence[HostReport]) -> str:
    """Return the notice that a host got from its cloud; empty: no host got one."""
    return next((r.notice for r in reports if r.notice), "")


def complete(progress: Progress) -> bool:
    """Return whether the program reports that it is complete, by its phase or by its last step."""
    return progress.phase == DONE or (progress.step is not None and progress.step == progress.steps)


def interrupted(reports: Sequence[HostReport], plain: str) -> End:
    """Return the end of a program that ended after a notice; `plain` is for one that does not report what it saved."""
    cause = Cause.MAINTENANCE if notice_of(reports) == MAINTENANCE else Cause.PREEMPTED
    word = "preempted" if cause is Cause.PREEMPTED else "taken for maintenance"
    message = f"the slice was {word}; {saved_words(reports) or plain}"
    notices = [
        proof(r.host, f"the metadata server reported: {r.notice}") for r in reports if r.notice
    ]
    others = [Proof(None, f"{len(notices) - 3} more hosts got it")] if len(notices) > 3 else []
    return End(Outcome.INTERRUPTED, cause, None, message, (*notices[:3], *others))


def stopped(code: int) -> str:
    return f"the program was stopped ({ending(code)})"


def saved_words(reports: Sequence[HostReport]) -> str:
    """Return in words what a program saved before it was stopped. Empty: unknown, as it reports no checkpoint. One that
    resumed, reported no checkpoint since and did not end by itself has saved nothing since."""
    steps = [r.progress for r in reports if r.progress.step is not None]
    saved = [p.checkpoint for p in steps if p.checkpoint is not None]
    by_itself = any(r.exit_code in (Exit.DONE, Exit.INTERRUPTED) for r in reports)
    began = [] if by_itself else [p.resumed_from for p in steps if p.resumed_from is not None]
    loss = reported_loss(reports)
    if loss:
        newest = common_checkpoint(reports, loss.since) if saved else max(began, default=None)
        is_good = newest is not None and (loss.since is None or newest < loss.since)
        return not_kept(loss, max(p.step or 0 for p in steps), newest if is_good else None)
    if by_itself and saved and min(saved) != max(saved):
        return f"the hosts saved different steps, {min(saved)} to {max(saved)}"
    newest = common_checkpoint(reports) if saved else min(began, default=None)
    if newest is None:
        return ""
    reached = max(p.step or 0 for p in steps)
    times = [r.saved_in for r in reports if r.saved_in is not None]
    if times and saved:
        return f"saved step {newest} in {max(times):.0f} s"
    lost = reached - newest
    if lost <= 0:
        return f"step {reached} was saved"
    return f"not saved, {lost} {'step' if lost == 1 else 'steps'} lost"
