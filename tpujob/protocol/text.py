"""The text of a program's output as people see it: the same for the backend, which shows it, and the agent, which
searches it."""

import re

#: CSI sequences; OSC, DCS and other strings up to their end; other escapes. Each also as one C1 character.
ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]?"
)
#: ends of lines, besides the newline
BREAKS = re.compile("[\r\x0b\x0c\x85\u2028\u2029]")
#: controls, direction marks and overrides, characters without a width, tags, surrogates, non-characters
HARMFUL = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    """Return the lines without escape sequences and invisible characters; other ends of lines become spaces."""
    if text.isascii() and text.isprintable():
        return text
    return HARMFUL.sub("", BREAKS.sub(" ", ESCAPES.sub("", text)))
