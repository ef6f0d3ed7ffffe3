"""The `matchGlob` parameter of a list: patterns of names, as Cloud Storage has them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from tpujob.emulator.storage.model import invalid

#: longest first; `/**/` may also be one slash
_PARTS = re.compile(r"/\*\*/|\*\*|\*|\?|\[[!^]?[^\]]+\]|[{},]|\\.|.", re.DOTALL)
_PLAIN = {"/**/": "/(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a name matches as a whole: `*` and `?` stop at `/`, `**` does not; `[a-c]`, `[!a]`, `{jpg,png}`. Raises
    400 for a brace that is not closed."""
    depth, parts = 0, list[str]()
    for part in _PARTS.findall(pattern):
        if part == "{":
            depth += 1
            parts.append("(?:")
        elif part == "}" and depth:
            depth -= 1
            parts.append(")")
        elif part == "," and depth:
            parts.append("|")
        else:
            parts.append(_PLAIN.get(part) or _other(part))
    try:
        found = re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise invalid(f"Invalid glob pattern {pattern[:80]!r}: {error}") from error
    return lambda name: found.fullmatch(name) is not None


def _other(part: str) -> str:
    """A set of characters, or a character that means itself."""
    if len(part) == 1 or part[0] == "\\":
        return re.escape(part[-1])
    inside = part[1:-1]
    no = "^/" if inside[0] in "!^" else ""  # none of them is `/`
    letters = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside.lstrip("!^") if no else inside)
    return f"[{no}{letters}]"
