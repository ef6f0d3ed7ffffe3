"""`tpujob diff`: what differs between two jobs. The command, and its page, which is pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from tpujob.cli.backend import connect
from tpujob.cli.options import Json, argument, complete_job
from tpujob.cli.output import say_page
from tpujob.cli.render import words
from tpujob.cli.render.text import clip, paint
from tpujob.domain.text import clean, many

if TYPE_CHECKING:
    from tpujob.api import ChangeView, DiffSide, DiffView, FileChangeView

_STYLES = {"+": "green", "-": "red", "@": "cyan"}
Side = Annotated[str, argument("JOB", "Its id or name.", autocompletion=complete_job)]


def diff(a: Side, b: Side, as_json: Json = False) -> None:
    """Show what differs between two jobs: spec, code, outcome."""
    say_page(connect().diff(a, b), diff_page, as_json)


def diff_page(found: DiffView, columns: int, *, color: bool = False) -> str:
    """From the first job to the second; what is equal is not shown."""
    a, b = found["a"], found["b"]
    out = [clean(f"a: job {a['id']}, {a['name']}"), clean(f"b: job {b['id']}, {b['name']}")]
    for title, changes in (("Spec", found["spec"]), ("Outcome", found["outcome"])):
        out += ["", paint(title, "bold", color), *_changes(changes, columns)]
    out += ["", paint("Code", "bold", color), *_code(found)]
    for file in found["files"]:
        out += _file(file, color)
    if found["cut"]:
        out += ["", "There are more changes than are shown."]
    return "\n".join(out)


def _changes(changes: list[ChangeView], columns: int) -> list[str]:
    if not changes:
        return ["  the same"]
    wide = min(32, max(len(change["key"]) for change in changes))
    return [
        clip(
            clean(f"  {change['key']:{wide}}  {_value(change['a'])} -> {_value(change['b'])}"),
            columns,
        )
        for change in changes
    ]


def _value(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def _code(found: DiffView) -> list[str]:
    out = [f"  {name}: {_stands(side)}" for name, side in (("a", found["a"]), ("b", found["b"]))]
    if found["files_unknown"]:
        return [*out, f"  {clean(found['files_unknown'])}"]
    if not found["files"]:
        return [*out, "  the files are the same"]
    differ = "differs" if len(found["files"]) == 1 else "differ"
    return [*out, f"  {many(len(found['files']), 'file')} {differ}"]


def _stands(side: DiffSide) -> str:
    if side["code"]:
        return clean(words.code(side["code"]))
    return "files without a commit" if side["bundles"] else "nothing is shipped"


def _file(file: FileChangeView, color: bool) -> list[str]:
    head = f"{file['change']}  {clean(file['path'])}"
    lines = (clean(line) for line in file["diff"].splitlines()[2:])  # without its own heading
    painted = [paint(line, _STYLES.get(line[:1], ""), color) for line in lines]
    return ["", paint(head, "bold", color), *painted]
