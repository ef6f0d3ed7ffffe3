"""Arguments and options that several commands share, and their completion."""

from typing import Annotated

import typer


def complete_job(incomplete: str) -> list[tuple[str, str]]:
    """Ids and names of jobs. Starts nothing and raises nothing."""
    from tpujob.cli.backend import running

    try:
        api = running()
        jobs = api.list({"limit": 200, "fields": ["name", "state"]})["rows"] if api else []
    except Exception:
        return []  # a half-typed line is no place for an error
    found = [(job["id"], f"{job['name']}, {job['state']}") for job in jobs]
    found += [(job["name"], f"{job['id']}, {job['state']}") for job in jobs]
    return [pair for pair in dict(found).items() if pair[0].startswith(incomplete)]


def complete_host(incomplete: str) -> list[tuple[str, str]]:
    """Names of suspected and pinned machines. Starts nothing and raises nothing."""
    from tpujob.cli.backend import running

    try:
        api = running()
        found = api.hosts()[:200] if api else []
    except Exception:
        return []
    named = [(h["physical"], f"{h['zone']}, score {h['score']:.2f}") for h in found]
    return [pair for pair in named if pair[0].startswith(incomplete)]


JobRef = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="Its id (42 or 000042) or unique name.", autocompletion=complete_job
    ),
]
JobRefs = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...",
        help="Ids (42 or 000042) or unique names.",
        autocompletion=complete_job,
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow the job until it ends.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
