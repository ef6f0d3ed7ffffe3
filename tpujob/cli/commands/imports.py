"""`tpujob import ...`: makes job files of another tool's files in a folder; submits nothing."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tpujob.cli.options import Json, Variables, argument, flag, option, variables
from tpujob.cli.output import say_page
from tpujob.cli.render.text import paint, wrap
from tpujob.config import files
from tpujob.domain.text import clean, many
from tpujob.submit.import_plan import ImportPlan, PathKind, local_path, write

app = typer.Typer(
    no_args_is_help=True, help="Make job files of the files of jobman or SkyPilot; submit nothing."
)
To = Annotated[Path, option("DIR", "Folder for the job files.")]
#: outcome of a key -> its colour
STYLE = {"warning": "yellow", "question": "magenta", "dropped": "dim"}


@app.command()
def jobman(
    path: Annotated[Path, argument("PATH", "tasks.yaml, the YAML of a job, or their folder.")],
    to: To = Path("tpujob-import"),
    code: Annotated[str, option("DIR", "Folder to ship in place of a clone.")] = "",
    while_jobman_runs: Annotated[
        bool, flag("Import running tasks too, held.", "--while-jobman-runs")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a job file of each task, and of each job with a command."""
    from tpujob.submit.jobman import read_jobman

    folder = path if path.is_dir() else path.parent
    paths = sorted(folder.glob("*.y*ml")) if path.is_dir() else [path]
    state = path.with_name(f"{path.stem}_state.yaml")
    paths += [state] if not path.is_dir() and state.exists() else []
    texts = {str(path): files.read(path) for path in paths}
    code = str(Path(code).expanduser().absolute()) if code else ""
    plan = read_jobman(texts, code=code, while_running=while_jobman_runs)
    # jobman's own folder is the one above
    _finish(plan, (folder, folder.parent), to, as_json=as_json)


@app.command()
def skypilot(
    file: Annotated[Path, argument("FILE", "A task YAML.")],
    to: To = Path("tpujob-import"),
    env: Variables = None,
    as_json: Json = False,
) -> None:
    """Make a job file of each task; each waits for the one before."""
    from tpujob.submit.skypilot import read_skypilot

    # SkyPilot reads paths from the folder in which it is called
    bases = (Path.cwd(), file.parent.absolute(), Path.cwd())
    kind_of = partial(_path_kind, bases)
    plan = read_skypilot(files.read(file), str(file), variables(env), kind_of)
    _finish(plan, bases, to, as_json=as_json)


def _path_kind(bases: Sequence[Path], path: str) -> PathKind:
    """Return what a path of this machine is. Of a folder, the first thousand names show whether it holds keys."""
    from tpujob.submit.secrets_scan import key_below

    local = local_path(path, bases)
    if key_below(Path(path).expanduser(), 0) or key_below(local, 1000):
        return "keys"
    return "file" if local.is_file() else "folder" if local.is_dir() else "missing"


def _finish(plan: ImportPlan, bases: Sequence[Path], to: Path, *, as_json: bool) -> None:
    """Write the job files, and print the outcome of each key."""
    paths = write(plan.jobs, bases, to)
    jobs = [
        {"file": str(path), "spec": job.spec} for path, job in zip(paths, plan.jobs, strict=True)
    ]
    keys = [asdict(note) for note in plan.notes]
    say_page({"jobs": jobs, "keys": keys, "done": plan.done}, import_page, as_json)


def import_page(record: dict[str, Any], columns: int, *, color: bool = False) -> str:
    """Return the outcome of each key, equal outcomes once; then the commands that create the jobs."""
    line_numbers: dict[tuple[str, ...], list[int]] = {}  # of equal outcomes
    for key in record["keys"]:
        row = (key["source"], clean(key["key"]), key["outcome"], clean(key["text"]))
        line_numbers.setdefault(row, []).append(key["line"])
    key_width = max((min(40, len(key)) for _, key, *_ in line_numbers), default=0)
    out: list[str] = []
    heading = ""
    for (source, key, outcome, text), numbers in line_numbers.items():
        if source != heading:
            out += ["", paint(clean(source), "bold", color)]
            heading = source
        repeats = f" +{len(numbers) - 1}" if len(numbers) > 1 else ""
        start = f"{numbers[0]:>5}{repeats:4} {key:{key_width}}  "
        first, *rest = wrap(text, max(20, columns - len(start) - 10))
        out.append(f"{start}{paint(f'{outcome:8}', STYLE.get(outcome, ''), color)}  {first}")
        out += [" " * (len(start) + 10) + line for line in rest]
    if record["done"]:
        text = f"Left out, as they have run: {clean(', '.join(record['done']))}."
        out += ["", *wrap(text, columns)]
    files = many(len(record["jobs"]), "job file")
    look = "Look at the files, then create the jobs in this order:"
    out += ["", f"Wrote {files}; nothing was submitted. {look}"]
    out += [f"  tpujob create {clean(job['file'])}" for job in record["jobs"]]
    return "\n".join(out[1:])
