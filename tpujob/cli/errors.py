"""How a command ends: exit codes, the form of an error message, what Ctrl-C says."""

import contextlib
from collections.abc import Generator

from tpujob import errors
from tpujob.cli.output import Screen, json_text, note
from tpujob.cli.render.text import paint
from tpujob.domain.text import clean

INTERRUPTED = 130
TIMED_OUT = 124  #: as timeout(1) has it
#: as a shell reports a program whose output was closed
OUTPUT_CLOSED = 141
ENDED_CANCELLED = 5
FOUND = 6
DOES_NOT_FIT = 78  #: as the program itself says it

#: Every exit code and what it means; those of errors are `errors.*.exit_code`.
EXIT_CODES: dict[int, str] = {
    0: "done; for wait, --follow and demo: the job has succeeded",
    1: "the job has failed, or any other error",
    errors.BadRequest.exit_code: "the command line is wrong",
    errors.NotFound.exit_code: "no such job, host or attempt",
    errors.IllegalInState.exit_code: "not possible in the job's state",
    ENDED_CANCELLED: "the job was cancelled",
    FOUND: "a problem, a file not copied, an unknown figure or a difference",
    errors.BadSpec.exit_code: "the job file is wrong",
    errors.BackendGone.exit_code: "the backend does not answer",
    errors.Refused.exit_code: "a remote service refused",
    errors.Transient.exit_code: "a remote call, or a check of doctor, failed and may succeed later",
    errors.HostKeyChanged.exit_code: "a host's SSH key has changed",
    errors.Unauthorized.exit_code: "the token is missing or wrong, or your role does not allow it",
    DOES_NOT_FIT: "create --check: the program does not fit the slice",
    TIMED_OUT: "wait: the time is up, the job continues",
    INTERRUPTED: "Ctrl-C: the command ended, the job continues",
    OUTPUT_CLOSED: "the output was closed",
}


def exit_code_table() -> str:
    """The table as `tpujob --help` shows it."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())


def show_error(error: errors.TpujobError, screen: Screen, *, as_json: bool = False) -> None:
    """The message on standard error, and below it what to do next; as JSON the same line as the HTTP API has it."""
    if as_json:
        note(json_text(error.as_json()))
        return
    lines = [line for line in error.message.splitlines() if line.strip()] or [type(error).__name__]
    title = paint("tpujob:", "red", screen.err_color)
    note(f"{title} " + "\n".join(clean(line) for line in lines))
    if error.hint:
        note("  " + "\n  ".join(clean(line) for line in error.hint.splitlines()))


@contextlib.contextmanager
def on_interrupt(*lines: str) -> Generator[None]:
    """Ctrl-C inside prints these lines, such as that the job continues, and how to follow it again."""
    try:
        yield
    except KeyboardInterrupt:
        note("\n" + "\n".join(lines))
        raise


def goes_on(job_id: str, command: str = "show {}") -> tuple[str, ...]:
    """Return what Ctrl-C prints in a command that only shows a job, with the command to follow it again."""
    again = command.format(job_id)
    return (f"Job {job_id} continues without this command.", f"  follow it again: tpujob {again}")
