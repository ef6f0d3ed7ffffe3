"""Secrets by name: which names and values are allowed. No record has a value: `ports.Secrets` keeps them, and hosts get
them when a program starts.
"""

import re
from collections.abc import Iterable, Mapping

from tpujob.errors import BadRequest, BadSpec

#: of a secret, which is also the variable that the program finds it in
NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
MAX_BYTES = 64 * 1024  #: of a value, as Secret Manager takes it
MOST = 20  #: secrets that one job can name


def checked_name(name: str) -> str:
    """The same. Raises BadRequest for what cannot be the name of a secret."""
    if not re.fullmatch(NAME, name) or name.upper().startswith("TPUJOB_"):
        raise BadRequest(
            f"{name[:60]!r} cannot be the name of a secret",
            hint="It is the name of a variable, such as WANDB_API_KEY: letters, digits and _; not TPUJOB_...",
        )
    return name


def checked_value(name: str, value: str) -> str:
    """The same. Raises BadRequest, without a word of the value."""
    if not value:
        raise BadRequest(
            f"no value is given for the secret {name}", hint=f"tpujob secret remove {name}"
        )
    if re.search("[\0\ud800-\udfff]", value):
        raise BadRequest(f"the value of {name} is not text: a variable cannot hold it")
    if len(value.encode()) > MAX_BYTES:
        raise BadRequest(f"the value of {name} has more than {MAX_BYTES // 1024} KiB")
    return value


def check_set(wanted: Iterable[str], known: Iterable[str]) -> None:
    """Raises BadSpec when a job names secrets that its owner has not set."""
    have = set(known)
    if missing := [name for name in wanted if name not in have]:
        raise BadSpec(
            f"run.secrets: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
            hint=f"tpujob secret set {missing[0]}",
        )


def check_lines(image: str, values: Mapping[str, str]) -> None:
    """Raise BadSpec when the program runs in that image and a value has several lines. A container gets such a value
    only on a command line, where others see it."""
    if image and (several := [name for name, value in values.items() if "\n" in value]):
        raise BadSpec(
            f"run.secrets: {several[0]} has several lines, and a program in an image gets values of one line",
            hint=f"Set it in base64: base64 -w0 FILE | tpujob secret set {several[0]}",
        )
