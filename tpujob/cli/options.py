"""Arguments and options that several commands share, and their completion."""

from __future__ import annotations

from typing import Annotated

import typer


def complete_job(incomplete: str) -> list[tuple[str, str]]:
    """Ids and names of the jobs that there are. Never starts anything, and never complains."""
    from tpujob.cli.backend import running

    try:
        api = running()
        jobs = api.list(all=True)[:200] if api else []
    except Exception:
        return []  # whatever it is, a half-typed line is no place to say it
    found = [(job["id"], f"{job['name']}, {job['state']}") for job in jobs]
    found += [(job["name"], f"{job['id']}, {job['state']}") for job in jobs]
    return [pair for pair in dict(found).items() if pair[0].startswith(incomplete)]


def complete_host(incomplete: str) -> list[tuple[str, str]]:
    """Names of the machines that are suspected or pinned. Never starts anything, and never complains."""
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
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
