"""Each `tpujob ...` that a page, a hint, an error, a job file or a document names can be parsed."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tests.support.paths import ROOT
from tpujob.api import METHODS
from tpujob.api.methods import Method
from tpujob.cli.app import COMMANDS, build

#: what stands for a value in a sentence, and a value of the right kind; `1` fits all others
VALUES = {"ROLE": "submitter", "FILE": "README.md", "NOTICE": "5s", "EXPORT": "README.md"}
#: outside backticks: from a command's name to the end of the sentence or of the remark in front of which it stands
PLAIN = re.compile(rf"\btpujob (?:{'|'.join(COMMANDS)})(?= |$)(?: [^\n]*)?", re.M)
QUOTED = re.compile(r"`(tpujob [^`]*)`")
END = re.compile(r"  |\n|[;,](?: |$)|\.$|\. | && | [#|<] |[:)](?: |$)")
MAIN = typer.main.get_command(build())


def words_of(text: str) -> list[str]:
    """The words of a command line after `tpujob`, with values for what stands for one."""
    text = re.sub(r"\[[A-Z]+(\.\.\.)?\]|\.\.\.|…", "", text)
    words = shlex.split(text, comments=True)[1:]
    return [VALUES.get(word, "1") if word.isupper() else word for word in words]


def fault(line: str, *, whole: bool) -> str:
    """Return why the command line cannot be parsed; empty: it can. Unless `whole`, arguments may be left out, as in a
    sentence that names a command rather than one call of it."""
    try:
        words, command = words_of(line), MAIN
        if any(word.endswith("-completion") for word in words):
            return "it changes the shell of the person who only parses it"
        context = MAIN.make_context("tpujob", words)
        while isinstance(command, TyperGroup):
            name, command, words = command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            if isinstance(command, TyperGroup) and not words and not command.invoke_without_command:
                return "it needs a command" if whole else ""
            context = command.make_context(name, words, parent=context)
            if not context._protected_args:
                break
    except ValueError as error:
        return str(error)
    except typer.Exit:
        return ""
    except typer.TyperException as error:
        message = error.format_message()
        lacks = ("Missing argument", "Missing option", "requires an argument")
        return "" if not whole and any(lack in message for lack in lacks) else message
    return ""


def value_after(text: str) -> str:
    """A value for what is put in after this text: nothing in the middle of a word, as it may be nothing there."""
    return "" if re.search(r"[\w-]$", text) else "job" if text.endswith("--by ") else "1"


def in_python(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the parts in backticks of each string, with `1` for each inserted value; of a message or a hint also the
    rest."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in inner:
            continue
        if isinstance(node, ast.JoinedStr):
            text = ""
            for part in node.values:
                text += str(part.value) if isinstance(part, ast.Constant) else value_after(text)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        yield from ((quoted, False) for quoted in QUOTED.findall(text))
        if id(node) not in docs:
            yield from ((plain, False) for plain in plainly(QUOTED.sub("", text)))


def in_template(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield what a button copies, whole, and the parts in backticks of each sentence."""
    text = path.read_text(encoding="utf-8")
    for call in re.findall(r"blocks\.command\((.*?)\) *\}\}", text):
        parts = [part.strip() for part in call.split(" ~ ")]
        line = "".join(part[1:-1] if part.startswith(("'", '"')) else "1" for part in parts)
        if line.startswith("tpujob "):
            yield line, True
    yield from (
        (re.sub(r"\{\{.*?\}\}", "1", line), False)
        for line in re.findall(r"<code>(tpujob .*?)</code>", text)
    )


def in_text(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the parts in backticks, and each line of a block of code that begins with the command."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    yield from (
        (quoted, False) for quoted in QUOTED.findall(re.sub(r"```.*?```", "", text, flags=re.S))
    )
    for line in re.findall(rf"^(?:\$ |# {{2,}}|)(tpujob (?:{'|'.join(COMMANDS)})\b.*)", text, re.M):
        if path.suffix != ".md" or any(
            line in block for block in re.findall(r"```.*?```", text, re.S)
        ):
            yield from ((part, True) for part in re.split(r"  .*| && | < .*", line) if part)


def plainly(text: str) -> list[str]:
    return [END.split(command)[0].rstrip() for command in PLAIN.findall(text)]


def named() -> Iterator[tuple[Path, str, bool]]:
    for pattern, read in (
        ("tpujob/**/*.py", in_python),
        ("tpujob/**/*.html", in_template),
        ("README.md", in_text),
        ("docs/*.md", in_text),
        ("deploy/*.md", in_text),
        ("configs/**/*.yaml", in_text),
    ):
        for path in sorted(ROOT.glob(pattern)):
            yield from ((path, line, whole) for line, whole in read(path))


def test_each_command_that_is_named_is_parsed() -> None:
    commands = list(named())
    kinds = {path.suffix for path, _, _ in commands}
    assert kinds == {".py", ".html", ".md", ".yaml"}
    assert len(commands) > 400
    faults = {
        f"{path.relative_to(ROOT)}: {line}: {why}"
        for path, line, whole in commands
        if (why := fault(line, whole=whole))
    }
    assert not faults, "\n" + "\n".join(sorted(faults))


@pytest.mark.parametrize(
    "line",
    [
        "tpujob hosts pin MACHINE bad",
        "tpujob nosuch",
        "tpujob list --stat failed",
        "tpujob show 1 2",
        "tpujob data",
    ],
)
def test_a_command_that_cannot_be_parsed_is_found(line: str) -> None:
    assert fault(line, whole=True)


@pytest.mark.parametrize("row", METHODS.values(), ids=lambda row: row.name)
def test_every_method_of_the_api_has_a_command(row: Method) -> None:
    """A refusal names it."""
    assert fault(row.asked_by, whole=False) == ""
