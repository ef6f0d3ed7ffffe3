"""The part of a job file about folders that the program writes and the bucket keeps: `outputs`."""

from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from tpujob.domain.spec import fields as kinds

#: for editors; `..` is refused in words
_INSIDE = r"(?![/~])[^\x00-\x1f]{1,256}"
_SHOWN = "checkpoints"


def _folder(value: Any) -> str:
    given = cast("str", kinds.text(256)(value)).rstrip("/")
    parts = given.split("/")
    if given.startswith(("/", "~")) or not given.isprintable() or {"", ".", ".."} & set(parts):
        raise ValueError(
            f"must be a folder inside the one in which the program starts, such as {_SHOWN}, not {str(value)[:60]!r}"
        )
    return given


def _apart(folders: tuple[str, ...]) -> tuple[str, ...]:
    """No folder lies in another."""
    for one in folders:
        for other in folders:
            if one.startswith(other + "/"):
                raise ValueError(f"{one} is inside {other}, which is kept as a whole; leave it out")
    return folders


_ONE = {"type": "string", "pattern": f"^{_INSIDE}$"}

Outputs = Annotated[
    tuple[str, ...],
    BeforeValidator(kinds.names("a folder", _folder)),
    AfterValidator(_apart),
    WithJsonSchema(
        {"anyOf": [_ONE, {"type": "array", "maxItems": kinds.MAX_ITEMS, "items": _ONE}]}
    ),
]
