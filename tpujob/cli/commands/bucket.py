"""`tpujob bucket`: the buckets of a context, where jobs keep their checkpoints, logs and code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpujob.cli.backend import current_settings
from tpujob.cli.options import Json, flag, option
from tpujob.cli.output import say, say_json
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.config.context import Context
    from tpujob.config.settings import Settings
    from tpujob.ports import BucketFacts

app = typer.Typer(no_args_is_help=True, help="Make and show the buckets of the context.")

#: seconds that Cloud Storage gets to answer
PATIENCE = 60.0


@app.command()
def create(
    region: Annotated[str, option("REGION", "Default: that of the first zone.")] = "",
    name: Annotated[
        str, option("gs://NAME", "Default: the context's bucket, or a name after the project.")
    ] = "",
    log_days: Annotated[int, option("DAYS", "Days until logs are removed; 0: never.", min=0)] = 90,
    adopt: Annotated[bool, flag("Set up an existing bucket.", "--adopt")] = False,
    as_json: Json = False,
) -> None:
    """Make a bucket in a region of the context, set up for checkpoints. Safe to repeat."""
    from tpujob.config import context
    from tpujob.wiring import client

    now, here = _here()
    region = region or here.regions[0]
    bucket = (name or here.buckets.get(region) or _usual(here, region)).rstrip("/")
    named = context.with_bucket(here, region, bucket)  # first, as it refuses a wrong name
    with client.blobs(now, here.project) as blobs:
        made = blobs.make_bucket(
            bucket, region, log_days=log_days or None, adopt=adopt, timeout=PATIENCE
        )
    if named != here:
        context.save_bucket(now, here, region, bucket)
    say_json(_record(made, region)) if as_json else _say(made, region)


@app.command()
def show(as_json: Json = False) -> None:
    """Show the buckets of the context, as they are set up."""
    from tpujob.wiring import client

    now, here = _here()
    if not here.buckets:
        raise BadRequest(
            f"the context {here.name} has no bucket",
            hint=f"tpujob bucket create --region {here.regions[0]}",
        )
    with client.blobs(now, here.project) as blobs:
        found = {r: blobs.bucket(b, timeout=PATIENCE) for r, b in here.buckets.items()}
    if as_json:
        say_json([_record(facts, region) for region, facts in found.items()])
        return
    for region, facts in found.items():
        _say(facts, region)


def _here() -> tuple[Settings, Context]:
    from tpujob.config import context

    now = current_settings()
    if now.local:
        raise BadRequest(
            "the local stack makes each bucket when it is first used",
            hint="For Google Cloud choose a context: `tpujob use NAME`, or `tpujob init` to make one.",
        )
    here = context.current(now)
    if here.backend:
        raise BadRequest(
            f"the context {here.name} is a deployed backend, which keeps its own list of buckets",
            hint="Run this with the context file that the backend was deployed with.",
        )
    return now, here


def _usual(here: Context, region: str) -> str:
    """Return the usual name, with the project in it, as names of buckets are global."""
    project = here.project.replace(":", "-").replace(".", "-")
    return f"gs://{project}-tpujob-{region}"


def _record(facts: BucketFacts, region: str) -> dict[str, Any]:
    from dataclasses import asdict

    return {"region": region, **asdict(facts)}


def _say(facts: BucketFacts, region: str) -> None:
    kept = f"removed after {facts.log_days} days" if facts.log_days else "kept for ever"
    deleted = (
        "gone at once" if not facts.soft_delete_s else f"billed for {facts.soft_delete_s} s more"
    )
    say(f"gs://{facts.name} in {facts.location}, for zones of {region}")
    say(f"  access      {'by IAM alone' if facts.uniform_access else 'by IAM and lists'}")
    say(f"  public      {'never' if facts.public_access == 'enforced' else 'possible'}")
    say(f"  deleted     {deleted}{', overwritten objects are kept' if facts.versioning else ''}")
    say(f"  logs        {kept}")
