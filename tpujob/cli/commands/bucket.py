"""`tpujob bucket`: makes and shows the buckets of a context, which hold checkpoints, logs and code of jobs."""

from __future__ import annotations

from dataclasses import asdict
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

#: timeout of a request to Cloud Storage, in seconds
REQUEST_TIMEOUT = 60.0


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

    settings, current = _own_context()
    region = region or current.regions[0]
    bucket = (name or current.buckets.get(region) or _default_name(current, region)).rstrip("/")
    changed = context.with_bucket(current, region, bucket)  # refuses a wrong name
    with client.blobs(settings, current.project) as blobs:
        made = blobs.make_bucket(
            bucket, region, log_days=log_days or None, adopt=adopt, timeout=REQUEST_TIMEOUT
        )
    if changed != current:
        context.save_bucket(settings, current, region, bucket)
    say_json(_record(made, region)) if as_json else _print_facts(made, region)


@app.command()
def show(as_json: Json = False) -> None:
    """Show the buckets of the context, as they are set up."""
    from tpujob.wiring import client

    settings, current = _own_context()
    if not current.buckets:
        raise BadRequest(
            f"the context {current.name} has no bucket",
            hint=f"tpujob bucket create --region {current.regions[0]}",
        )
    with client.blobs(settings, current.project) as blobs:
        buckets = {
            region: blobs.bucket(name, timeout=REQUEST_TIMEOUT)
            for region, name in current.buckets.items()
        }
    if as_json:
        say_json([_record(facts, region) for region, facts in buckets.items()])
        return
    for region, facts in buckets.items():
        _print_facts(facts, region)


def _own_context() -> tuple[Settings, Context]:
    """Return the settings, and the context whose backend runs on this machine. Raises BadRequest for any other."""
    from tpujob.config import context

    settings = current_settings()
    if settings.local:
        raise BadRequest(
            "the local stack makes each bucket when it is first used",
            hint="For Google Cloud choose a context: `tpujob use NAME`, or `tpujob init` to make one.",
        )
    current = context.current(settings)
    if current.backend:
        raise BadRequest(
            f"the context {current.name} is a deployed backend, which keeps its own list of buckets",
            hint="Run this with the context file that the backend was deployed with.",
        )
    return settings, current


def _default_name(context: Context, region: str) -> str:
    """Return the default URL of a bucket; the project is in the name, as names of buckets are global."""
    project = context.project.replace(":", "-").replace(".", "-")
    return f"gs://{project}-tpujob-{region}"


def _record(facts: BucketFacts, region: str) -> dict[str, Any]:
    return {"region": region, **asdict(facts)}


def _print_facts(facts: BucketFacts, region: str) -> None:
    logs = f"removed after {facts.log_days} days" if facts.log_days else "kept for ever"
    deleted = (
        "gone at once" if not facts.soft_delete_s else f"billed for {facts.soft_delete_s} s more"
    )
    say(f"gs://{facts.name} in {facts.location}, for zones of {region}")
    say(f"  access      {'by IAM alone' if facts.uniform_access else 'by IAM and lists'}")
    say(f"  public      {'never' if facts.public_access == 'enforced' else 'possible'}")
    say(f"  deleted     {deleted}{', overwritten objects are kept' if facts.versioning else ''}")
    say(f"  logs        {logs}")
