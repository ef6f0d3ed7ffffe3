"""Rules for the names and values of secrets. Pure.

No record contains a value: `ports.Secrets` keeps them, and hosts get them at the start of a program.
"""

import re
from collections.abc import Iterable, Mapping

from tpujob.errors import BadRequest, BadSpec

#: pattern of a secret's name, which is also the program's variable
NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
MAX_BYTES = 64 * 1024  #: of a value, the limit of Secret Manager
MAX_SECRETS = 20  #: secrets that one job can name


def checked_name(name: str) -> str:
    """Return `name`. Raise BadRequest if it cannot be the name of a secret."""
    if not re.fullmatch(NAME, name) or name.upper().startswith("TPUJOB_"):
        raise BadRequest(
            f"{name[:60]!r} cannot be the name of a secret",
            hint="It is the name of a variable, such as WANDB_API_KEY: letters, digits and _; not TPUJOB_...",
        )
    return name


def checked_value(name: str, value: str) -> str:
    """Return `value`. Raise BadRequest, without quoting the value, if it cannot be a secret."""
    if not value:
        raise BadRequest(f"the value of {name} is empty", hint="Type it, or use standard input.")
    if re.search("[\0\ud800-\udfff]", value):
        raise BadRequest(f"the value of {name} is not text: a variable cannot hold it")
    if len(value.encode()) > MAX_BYTES:
        raise BadRequest(f"the value of {name} has more than {MAX_BYTES // 1024} KiB")
    return value


def check_set(names: Iterable[str], stored: Iterable[str]) -> None:
    """Raise BadSpec if a job names secrets that its owner has not set."""
    have = set(stored)
    if missing := [name for name in names if name not in have]:
        raise BadSpec(
            f"run.secrets: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
            hint=f"tpujob secret set {missing[0]}",
        )


def check_lines(image: str, values: Mapping[str, str]) -> None:
    """Raise BadSpec if the program runs in an image and a value has several lines: a container could get such a value
    only on a command line, which other users can read."""
    if image and (several := [name for name, value in values.items() if "\n" in value]):
        raise BadSpec(
            f"run.secrets: {several[0]} has several lines, and a program in an image gets values of one line",
            hint=f"Set it in base64: base64 -w0 FILE | tpujob secret set {several[0]}",
        )
