"""The end of a command: exit codes, the form of an error message, and what Ctrl-C prints."""

import contextlib
from collections.abc import Generator

from tpujob import errors
from tpujob.cli.output import Screen, json_text, note
from tpujob.cli.render.text import paint
from tpujob.cli.render.words import EXIT_OF_STATE
from tpujob.domain.text import clean

TIMED_OUT = 124  #: the exit code of timeout(1)
OUTPUT_CLOSED = 141  #: a shell's code for a program that SIGPIPE ended
PROBLEM_FOUND = 6
DOES_NOT_FIT = 78  #: the program's own code for a bad configuration

#: Every exit code and what it means; those of errors are `errors.*.exit_code`.
EXIT_CODES: dict[int, str] = {
    0: "done; for wait, --follow and demo: the job has succeeded",
    1: "the job has failed, or any other error",
    errors.BadRequest.exit_code: "the command line is wrong",
    errors.NotFound.exit_code: "no such job, host or attempt",
    errors.IllegalInState.exit_code: "not possible in the job's state",
    EXIT_OF_STATE["cancelled"]: "the job was cancelled",
    PROBLEM_FOUND: "a problem, a file not copied, an unknown figure or a difference",
    errors.BadSpec.exit_code: "the job file is wrong",
    errors.BackendGone.exit_code: "the backend does not answer",
    errors.Refused.exit_code: "a remote service refused",
    errors.Transient.exit_code: "a remote call, or a check of doctor, failed and may succeed later",
    errors.HostKeyChanged.exit_code: "a host's SSH key has changed",
    errors.Unauthorized.exit_code: "the token is missing or wrong, or your role does not allow it",
    DOES_NOT_FIT: "fit, create --check: the program does not fit the slice",
    TIMED_OUT: "wait: the time is up, the job continues",
    130: "Ctrl-C: the command ended, the job continues",
    OUTPUT_CLOSED: "the output was closed",
}


def exit_code_table() -> str:
    """Return the table of exit codes that `tpujob --help` shows."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())


def show_error(error: errors.TpujobError, screen: Screen, *, as_json: bool = False) -> None:
    """Print the message and its hint to standard error; as JSON, the line that the HTTP API answers with."""
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
    """Print these lines when Ctrl-C ends the block, for example that the job continues."""
    try:
        yield
    except KeyboardInterrupt:
        note("\n" + "\n".join(lines))
        raise


def job_continues(job_id: str, command: str = "logs {} -f") -> tuple[str, ...]:
    """Return the lines that Ctrl-C prints in a command that only shows a job: how to follow the job again."""
    again = command.format(job_id)
    return (f"Job {job_id} continues without this command.", f"  follow it again: tpujob {again}")
