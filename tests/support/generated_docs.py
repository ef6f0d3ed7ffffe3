"""The generated halves of docs/commands.md and docs/job-file.md; `make docs` writes them into the pages.

The text above the marker of a page is written by hand, all below it comes from the command line or from the schema.
"""

import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import typer
from typer.core import TyperArgument, TyperGroup

from tests.support.paths import ROOT
from tpujob.cli.app import GROUPS, build
from tpujob.domain.spec import jobspec

#: how the help ends of a number that may not be negative: no reader needs it
LOWEST = re.compile(r"(?:; )?x>=[\d.]+(?=\])")

Schema = dict[str, Any]

DOCS = ROOT / "docs"
MARKER = "<!-- Written by `make docs`; change nothing below. -->\n"
#: meanings that the text above the marker of docs/commands.md states once, or that a name states: left out ...
COMMON = ("Its id (42 or 000042) or unique name.", "Ids (42 or 000042) or unique names.", "Its id or name.",
          "Only this job.", "Default: all jobs.", "Default: the list of jobs.", "Default: the only ready slice.",
          "A job file in YAML.", "A folder.", "A folder with a packed set.", "Such as us-central2-b.",
          "Login or e-mail address.", "viewer, submitter or admin.", "As in `tpujob hosts`.", "Name in the context.",
          "Run a command.", "A line `NAME: ROLE` per member.", "Print JSON.")  # fmt: skip
#: ... and of options, which stand in the first line of their command, as those do that their name explains
SHORT = ("Print CSV, in micro-dollars.", "Follow the job until it ends.", "Host number; default: all.",
         "Default: until --off.")  # fmt: skip
#: words of a help of which the name of the option says as much
FEW = 6
WIDTH, INDENT, INDENT_OF_KEYS = 120, 28, 46


def commands_page() -> str:
    """Return every command with its arguments and options, by the headings of `tpujob --help`."""
    main: Any = typer.main.get_command(build())
    context = main.make_context("tpujob", [], resilient_parsing=True)
    lines: list[str] = []
    for heading, names in GROUPS.items():
        lines += ["", f"## {heading}", "", "```"]
        for name in names:
            for path, command, own in _leaves(main.commands[name], [name], context):
                lines += _command(path, command, own)
        lines += ["```"]
    return "\n".join(lines) + "\n"


def _leaves(command: Any, path: list[str], parent: Any) -> Iterator[tuple[list[str], Any, Any]]:
    """Yield the command, or for a group each of its commands; a group that runs by itself comes first."""
    context = command.make_context(path[-1], [], parent=parent, resilient_parsing=True)
    if not isinstance(command, TyperGroup):
        yield path, command, context
        return
    if command.invoke_without_command:
        yield path, command, context
    for name in command.list_commands(context):
        if not command.commands[name].hidden:
            yield from _leaves(command.commands[name], [*path, name], context)


def _command(path: list[str], command: Any, context: Any) -> Iterator[str]:
    """Yield the first line, the help and the options; of the emulator one line and the options' names."""
    usage, rows = [*path], list[tuple[str, str]]()
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or record[0].endswith("--help"):
            continue
        name, text = record[0], " ".join(LOWEST.sub("", record[1]).replace("[]", "").split())
        if isinstance(parameter, TyperArgument):
            usage.append(name if parameter.required or name.startswith("[") else f"[{name}]")
            text = text.removesuffix("[required]").strip()
            if text not in COMMON and path[0] != "emulator":
                rows.append((name, text))
        elif text in COMMON:
            continue
        elif text in SHORT or len(text.split(" [")[0].split()) <= FEW or path[0] == "emulator":
            usage.append(f"[{name.rpartition(', ')[2]}]")
        else:
            rows.append((name, text))
    yield from textwrap.wrap(" ".join(usage), WIDTH, subsequent_indent="    ")
    text = command.help or ""
    yield from _wrapped("  ", text.partition("\n")[0] if path[0] == "emulator" else text, 2)
    for name, text in rows:
        yield from _wrapped(f"    {name}  ".ljust(INDENT), text, INDENT)


def _wrapped(first: str, text: str, indent: int) -> Iterator[str]:
    """Yield the text behind `first`, or below it if that is too long, in lines that begin at the column `indent`."""
    if len(first) > indent:
        yield first.rstrip()
        first = " " * indent
    yield from textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )


def job_file_page() -> str:
    """Return the keys of the job file, and those of each part that has keys of its own."""
    schema = jobspec.schema()
    lines = ["", "## Keys", "", *_keys(schema, schema)]
    for path, part in _parts(schema, "", schema):
        lines += ["", f"## {path}", "", *_keys(part, schema)]
    return "\n".join(lines) + "\n"


def _parts(part: Schema, prefix: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield each part below this one with its path, such as `mounts.cache`; depth first."""
    for key, value in part["properties"].items():
        if inner := _part_of(value, schema):
            yield prefix + key, inner
            yield from _parts(inner, f"{prefix}{key}.", schema)


def _part_of(value: Schema, schema: Schema) -> Schema | None:
    """Return the keys that the value may have, itself or as an item of a list."""
    if "$ref" in value:
        value = schema["$defs"][value["$ref"].rpartition("/")[2]]
    if "properties" in value:
        return value
    inner = [*value.get("anyOf", []), *([value["items"]] if "items" in value else [])]
    return next(filter(None, (_part_of(schema_, schema) for schema_ in inner)), None)


def _keys(part: Schema, schema: Schema) -> Iterator[str]:
    required = part.get("required", [])
    yield "```"
    for key, value in part["properties"].items():
        default = ["required"] if key in required else _default(value)
        meaning = value.get("description") or (_part_of(value, schema) or {}).get("description", "")
        first = f"{key:20} {', '.join([_type(value), *default])}".ljust(INDENT_OF_KEYS - 2) + "  "
        yield from _wrapped(first, meaning, INDENT_OF_KEYS)
    yield "```"


def _default(value: Schema) -> list[str]:
    default = value.get("default")
    if default is None or isinstance(default, (list, dict)) or default == "":
        return []
    return [f"default {str(default).lower() if isinstance(default, bool) else default}"]


def _type(value: Schema) -> str:
    """Return a word for the values that the key takes, such as `number`, or `text or list`."""
    if choices := value.get("anyOf"):
        words = dict.fromkeys(_type(choice) for choice in choices if choice.get("type") != "null")
        return " or ".join(words)
    if 1 < len(value.get("enum", [])) < 8:
        return "|".join(value["enum"])
    if "[0-9]{1,9}d" in value.get("pattern", ""):
        return "time"
    kinds = {"array": "list", "boolean": "boolean", "integer": "integer", "number": "number"}
    if "$ref" in value or value.get("type") == "object":
        return "keys"
    return kinds.get(value.get("type", ""), "text")


PAGES: dict[str, Callable[[], str]] = {"commands.md": commands_page, "job-file.md": job_file_page}


def current(name: str) -> str:
    """Return the page as it should be: what stands above its marker, then what is generated."""
    by_hand, marker, _ = (DOCS / name).read_text(encoding="utf-8").partition(MARKER)
    assert marker, f"docs/{name} has lost its line {MARKER!r}"
    return by_hand + MARKER + PAGES[name]()


if __name__ == "__main__":
    for page in PAGES:
        (DOCS / page).write_text(current(page), encoding="utf-8")
