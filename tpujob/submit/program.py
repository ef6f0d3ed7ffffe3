"""Finds in a shell command the script that the hosts will lack. Reads only what is plain: of a command that it does not
understand it reports nothing."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from posixpath import normpath

_PYTHON = re.compile(r"python(?:[23](?:\.\d+)?)?")
_SHELLS = frozenset({"bash", "sh"})
#: commands that run the command behind them
_PREFIXES = frozenset({"exec", "time", "nohup", "command", "env"})
#: commands that make no file
_HARMLESS = frozenset(
    {
        "cd",
        "echo",
        "export",
        "printf",
        "set",
        "sleep",
        "true",
        "ulimit",
        "unset",
        ":",
        "pip",
        "pip3",
    }
)
#: what changes the order of the commands
_CONTROL = frozenset(
    ("if", "for", "while", "until", "case", "select", "function", "coproc", "{", "!", "[[", "[")
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
#: what the shell or a sweep replaces, and paths of the host
_EXPANDED = re.compile(r"[$`*?\[\]{}\\]|^[/~-]")
_REDIRECTS = (">", ">>", ">&", "<", "&>")
_OPERATORS = re.compile(r"[();<>|&]+")


@dataclass(frozen=True, slots=True)
class MissingScript:
    """A script, as a path below the program's folder, that is not there when its command starts."""

    path: str
    certain: bool  #: the program cannot succeed without it


@dataclass(frozen=True, slots=True)
class _Statement:
    words: list[str]
    redirects: bool
    operator: str  #: behind it: `&&`, `||`, `|`, `;`, `&`; empty: it is the last


def missing_script(command: str, shipped: Callable[[str], bool]) -> MissingScript | None:
    """Return the first script of the command that is not `shipped`; None: there is none, or the command is unclear."""
    statements = list(_statements(command))
    folder, certain, strict = ".", True, False
    for number, statement in enumerate(statements):
        words = _without_prefixes(statement.words)
        if words is None or not words:
            return None
        if words[0] == "set":
            changes = [w[0] == "-" for w in words[1:] if re.fullmatch(r"[-+]\w*e\w*", w)]
            strict = [strict, *changes][-1]
        if words[0] == "cd":
            if (
                len(words) != 2
                or _EXPANDED.search(words[1])
                or statement.operator in ("|", "||", "&")
            ):
                return None
            folder = normpath(f"{folder}/{words[1]}")
            certain = certain and (strict or statement.operator == "&&" or shipped(folder))
            continue
        script = _script(words)
        path = normpath(f"{folder}/{script}") if script else ""
        if path.startswith("../"):
            return None
        if path and not shipped(path):
            allowed = {"&&", "|", "", *([";"] if strict else [])}
            decides = all(later.operator in allowed for later in statements[number:])
            return MissingScript(path, certain and decides)
        certain = certain and words[0] in _HARMLESS and not statement.redirects
    return None


def _statements(command: str) -> Iterator[_Statement]:
    """Yield the simple commands up to the first construct that is none, which comes as a statement without words."""
    lines = [line.strip() for line in command.replace("\\\n", " ").split("\n")]
    lines = [line for line in lines if line and line[0] != "#"]
    for number, line in enumerate(lines, 1):
        words, redirects = list[str](), False
        for token in _tokens(line):
            if not _OPERATORS.fullmatch(token):
                words.append(token)
            elif token in ("&&", "||", "|", ";", "&"):
                yield _Statement(words, redirects, token)
                words, redirects = [], False
            elif token in _REDIRECTS:
                redirects = True
                words.append(token)
            else:
                yield _Statement([], False, "||")
                return
        if words:
            yield _Statement(words, redirects, ";" if number < len(lines) else "")


def _tokens(line: str) -> list[str]:
    """Return the words and operators of a line without its comment; `<<`, which is no simple command, if it ends within
    quotes."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        tokens = list(lexer)
    except ValueError:
        return ["<<"]
    comment = next((n for n, token in enumerate(tokens) if token.startswith("#")), len(tokens))
    return tokens[:comment]


def _without_prefixes(words: Sequence[str]) -> list[str] | None:
    """Return the words of a command without variables and `exec` before it; None: it is no simple command."""
    rest = [*words]
    while rest and (_ASSIGNMENT.fullmatch(rest[0]) or rest[0] in _PREFIXES):
        if rest.pop(0) in _PREFIXES and rest and rest[0].startswith("-"):
            return None
    return None if rest and (rest[0] in _CONTROL or _EXPANDED.search(rest[0].lstrip("/"))) else rest


def _script(words: Sequence[str]) -> str:
    """Return the path of the script that a simple command runs, relative to its folder; empty: unknown, or none."""
    program = PurePosixPath(words[0]).name
    if "/" in words[0] and not _EXPANDED.search(words[0]):
        return words[0]
    if _PYTHON.fullmatch(program):
        script = _after_options(words[1:], r"-[BbdEhiIOPqsSuvVx]+", r"-[XW]")
    elif program in _SHELLS:
        script = _after_options(words[1:], r"-[aefhilmnuvxBCEHPT]+", r"[-+]\w*[oO]")
        script = script if "." in script or "/" in script else ""  # it may be in PATH
    elif program == "torchrun":
        flags = r"--(?:[\w-]+=.*|standalone|use[_-]env|run[_-]path)"
        script = _after_options(words[1:], flags, r"--[\w-]+(?<!python)(?<!module)")
        script = script if script.endswith(".py") else ""
    else:
        return ""
    return "" if _EXPANDED.search(script) else script


def _after_options(words: Sequence[str], flags: str, with_value: str) -> str:
    """Return the first word behind the options; empty: there is none, or an option is unknown."""
    rest = iter(words)
    for word in rest:
        if not word.startswith(("-", "+")):
            return "" if word in _REDIRECTS or word.isdecimal() else word
        if re.fullmatch(flags, word):
            continue
        if not re.fullmatch(with_value, word) or next(rest, None) is None:
            return ""
    return ""
