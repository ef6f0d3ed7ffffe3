"""Puts the values of a sweep into a shell command, each as one word, of which the shell executes nothing. Pure."""

import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

#: the name of a parameter of a sweep
PARAMETER = r"[A-Za-z_][A-Za-z0-9_]{0,62}"
#: a name in braces; `${NAME}` is left to the shell
BRACES = re.compile(rf"(?<!\$)\{{({PARAMETER})\}}")

# where a name in braces stands
WORD, DOUBLE, SINGLE, ANSI, COMMENT = "a word", '"', "'", "$'", "#"
#: also where another shell or an evaluation would read the value once more
UNSURE = "elsewhere"

#: a value that no shell changes or executes, wherever it stands
_SAFE = re.compile(r"[\w@%+=:,./-]+")
#: what makes another shell of the same line read its words, or any line's
_INNER_SHELL = re.compile(
    r"(?<![\w.-])(?:[bdkz]?a?sh\s+(?:[-+]o\s+\w+\s+|--?\w+\s+)*-\w*c|su\s(?:.*\s)?-c|ssh)\s"
)
_EVALUATION = re.compile(r"\beval\b|\|\s*(?:sudo\s+)?[bdkz]?a?sh\b")
_HEREDOC = re.compile(r"<<(-?)[ \t]*(\\?[^\s;&|()<>]+)")

_SINGLE_END = re.compile("[^']*'")
_ANSI_END = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)

# what ends a construct
_COMMANDS, _BACKTICK, _BRACE, _BRACKET, _ARITHMETIC = ")", "`", "}", "]", "))"
_OPENERS = {"${": _BRACE, "$[": _BRACKET, "$(": _COMMANDS}


class Placeholder(NamedTuple):
    start: int
    end: int
    name: str
    quoting: str


def fill(command: str, values: Mapping[str, str]) -> str:
    """Return the command with the values of the names in braces. Raise ValueError for a value that cannot be kept as
    one word where it stands."""
    parts, at = list[str](), 0
    for place in placeholders(command):
        if place.name in values:
            parts += [command[at : place.start], _quoted(place, values[place.name])]
            at = place.end
    return "".join([*parts, command[at:]])


def _quoted(place: Placeholder, value: str) -> str:
    if place.quoting == WORD:
        return shlex.quote(value)
    if place.quoting == DOUBLE:
        return re.sub(r'([\\$"`])', r"\\\1", value)
    if place.quoting == SINGLE:
        return value.replace("'", r"'\''")
    if place.quoting == ANSI:
        return re.sub(r"(['\\])", r"\\\1", value)
    if place.quoting == COMMENT:
        return " ".join(value.split())
    if _SAFE.fullmatch(value):
        return value
    raise ValueError(
        f"{{{place.name}}} stands where the value {value[:60]!r} cannot be kept as one word; "
        f'write "$TPUJOB_PARAM_{place.name.upper()}" there'
    )


@lru_cache(64)
def placeholders(command: str) -> tuple[Placeholder, ...]:
    """Return the names in braces in the order of the text, each with the quoting around it."""
    return tuple(_Reading(command).placeholders())


class _Reading:
    """One pass over a command. `_open` has what ends each construct around the position, the innermost last."""

    def __init__(self, command: str) -> None:
        self._text = command
        self._matches = {match.start(): match for match in BRACES.finditer(command)}
        self._placeholders: list[Placeholder] = []
        self._open: list[str] = []
        #: delimiters of here-documents that begin at the next line, and whether tabs may precede them
        self._heredocs: list[tuple[str, bool]] = []
        self._unclear = False
        self._line = 0  #: the end of the line before this line of commands

    def placeholders(self) -> list[Placeholder]:
        at = 0
        while at < len(self._text):
            at = self._next(at)
        # `case` has closing parentheses without opening ones
        unbalanced = "(" in self._text and re.search(r"\besac\b", self._text)
        unsure = (
            self._unclear
            or self._open
            or self._heredocs
            or unbalanced
            or _EVALUATION.search(self._text)
        )
        return [place._replace(quoting=UNSURE) if unsure else place for place in self._placeholders]

    def _next(self, at: int) -> int:
        """Read one token and return the position after it."""
        text, around = self._text, self._open[-1] if self._open else _COMMANDS
        if at in self._matches:
            return self._place(at, DOUBLE if around == DOUBLE else WORD)
        char, two = text[at], text[at : at + 2]
        if char == "\\":
            return self._place(at + 1, UNSURE) if at + 1 in self._matches else at + 2
        if text.startswith(around, at) and self._open:
            self._open.pop()
            return at + len(around)
        if around == _BACKTICK:
            return at + 1
        if text.startswith("$((", at):
            return self._enter(_ARITHMETIC, at + 3)
        if two == "$$":
            return at + 2
        if two in _OPENERS:
            return self._enter(_OPENERS[two], at + 2)
        if char in '"`':
            return self._enter(char, at + 1)
        if around == DOUBLE:
            return at + 1
        if two == "$'":
            return self._single(at + 2, _ANSI_END, ANSI)
        if char == "'" and around == _BRACE and DOUBLE in self._open:
            self._unclear = True  # shells differ
        if char == "'":
            return self._single(at + 1, _SINGLE_END, SINGLE)
        if around == _ARITHMETIC:
            return self._enter(_COMMANDS, at + 1) if char == "(" else at + 1
        return self._command(at) if around == _COMMANDS else at + 1

    def _command(self, at: int) -> int:
        """Read one token of a command."""
        text, two = self._text, self._text[at - 1 : at + 1]
        starts_word = at == 0 or text[at - 1] in " \t\n;&|(<>"
        if text.startswith("((", at) and starts_word:
            return self._enter(_ARITHMETIC, at + 2)
        if text[at] == "(":
            return self._enter(_COMMANDS, at + 1)
        if two == ")#":  # a comment after `(ls)`, and none after `<(ls)`
            self._unclear = True
        if text[at] == "#" and starts_word:
            return self._span(at, self._end(at, "\n"), COMMENT)
        if text.startswith("<<<", at):
            return at + 3
        if heredoc := _HEREDOC.match(text, at):
            self._heredocs.append((re.sub(r"['\"\\]", "", heredoc[2]), bool(heredoc[1])))
            return heredoc.end()
        if text[at] == "\n" and self._heredocs:
            return self._bodies(at + 1)
        if text[at] == "\n" and not self._open:
            self._line = at
        return at + 1

    def _bodies(self, at: int) -> int:
        """Read the bodies of the here-documents that begin at a line."""
        while self._heredocs and at < len(self._text):
            delimiter, tabs = self._heredocs[0]
            end = self._end(at, "\n")
            line = self._text[at:end]
            if (line.lstrip("\t") if tabs else line) == delimiter:
                del self._heredocs[0]
            at = self._span(at, end, UNSURE) + 1
        # at the end of the last line; a body without its delimiter is the rest of the text
        return len(self._text) if self._heredocs else at - 1

    def _single(self, at: int, end: re.Pattern[str], quoting: str) -> int:
        """Read a text up to its closing quote."""
        closed = end.match(self._text, at)
        if closed is None:
            self._open.append(SINGLE)
        return self._span(at, closed.end() if closed else len(self._text), quoting)

    def _enter(self, end: str, at: int) -> int:
        self._open.append(end)
        return at

    def _end(self, at: int, mark: str) -> int:
        end = self._text.find(mark, at)
        return len(self._text) if end < 0 else end

    def _span(self, at: int, end: int, quoting: str) -> int:
        for start in [start for start in self._matches if at <= start < end]:
            self._place(start, quoting)
        return end

    def _place(self, start: int, quoting: str) -> int:
        match = self._matches[start]
        inner = quoting != COMMENT and _INNER_SHELL.search(self._text, self._line, start)
        if inner or not {_BACKTICK, _BRACE, _BRACKET, _ARITHMETIC}.isdisjoint(self._open):
            quoting = UNSURE
        self._placeholders.append(Placeholder(start, match.end(), match[1], quoting))
        return match.end()
