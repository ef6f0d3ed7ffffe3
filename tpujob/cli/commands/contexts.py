"""`tpujob init` and `tpujob use`: choose where jobs run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpujob.cli.options import Json, argument, flag, option
from tpujob.cli.output import get_screen, note, say, say_json
from tpujob.domain.text import clean
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.config.settings import Settings


def use(
    where: Annotated[str, argument("[local|NAME|URL|PATH]", "Default: list the contexts.")] = "",
    name: Annotated[str, option("NAME", "Name of the context; default: after the host.")] = "",
    client_id: Annotated[str, option("ID", "OAuth client for sign-in.")] = "",
    client_secret: Annotated[str, option("TEXT", "Secret of that client.")] = "",
    account: Annotated[
        str, option("[machine|EMAIL]", "Service account of this machine, or one to impersonate.")
    ] = "",
    door: Annotated[
        str, option("[iam|iap|public]", "Access control in front of the backend.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Choose where jobs run: here, a context, a shared backend.

    URL: a deployed backend. PATH: the socket of `tpujob serve`."""
    from tpujob.config import context
    from tpujob.config.settings import LOCAL, choose, load

    settings = load()
    if not where:
        _list(settings, as_json=as_json)
        return
    deployed = "://" in where
    if (client_id or client_secret or account or door) and not deployed:
        raise BadRequest(
            "--client-id, --client-secret, --account and --door go with the URL of a backend",
            hint="tpujob use URL --name NAME, with these options, changes a context.",
        )
    if where.startswith(("/", "unix:")):
        where = _write_socket_context(settings, where.removeprefix("unix:"), name)
    elif deployed:
        sign_in = {"client_id": client_id, "client_secret": client_secret, "account": account}
        where = _write_deployed_context(settings, where, name, sign_in, door)
    elif where != LOCAL:
        context.read(settings, where)
    choose(settings, where)
    current = load().context
    if current != where:
        note(f"tpujob: TPUJOB_CONTEXT is set, so this terminal keeps using {current}")
    say(f"Jobs now run in {_describe(settings, where)}.")
    if deployed:
        _sign_in_if_needed(load(settings.state, context=where))


def _list(settings: Settings, *, as_json: bool) -> None:
    from tpujob.config import context
    from tpujob.config.settings import LOCAL

    names = [LOCAL, *context.names(settings)]
    if as_json:
        say_json([{"name": name, "current": name == settings.context} for name in names])
        return
    for name in names:
        say(f"{'*' if name == settings.context else ' '} {_describe(settings, name)}")
    if len(names) == 1:
        say("\nTo run jobs in Google Cloud: tpujob init")


def _describe(settings: Settings, name: str) -> str:
    """Describe a context in a few words, or say what is wrong with its file."""
    from tpujob.config import context
    from tpujob.config.settings import LOCAL
    from tpujob.errors import TpujobError

    if name == LOCAL:
        return "local: the emulator on this machine"
    try:
        described = context.read(settings, name)
    except TpujobError as error:
        return f"{name}: {error.message}"
    if described.backend:
        return f"{name}: the backend at {described.backend}"
    return f"{name}: project {described.project}, {', '.join(described.zones)}"


def _write_socket_context(settings: Settings, path: str, name: str) -> str:
    """Write a context for the backend at a socket that recognises this user; return the context's name."""
    from tpujob.config import context, shared_socket
    from tpujob.wiring import client

    socket = shared_socket.checked(Path(path))
    uid, caller = client.greet_socket(socket)
    made = context.for_backend(settings, f"unix:{socket}", name, uid=uid)
    context.write(settings, made)
    you = f"{clean(caller['name'])}, {caller['role']}"
    say(f"{shared_socket.login_of(uid)} runs that backend; there you are {you}.")
    return made.name


def _write_deployed_context(
    settings: Settings, url: str, name: str, sign_in: dict[str, str], door: str
) -> str:
    """Write a context for a deployed backend; empty options keep their values. Return the context's name."""
    from tpujob.config import context

    fields = context.for_backend(settings, url.rstrip("/"), name).model_dump(mode="json")
    fields["sign_in"] |= {option: value for option, value in sign_in.items() if value}
    fields["door"] = door or fields["door"]
    made = context.make(fields)
    context.write(settings, made)
    return made.name


def _sign_in_if_needed(settings: Settings) -> None:
    """Print the identity at the backend. Without one sign in; without a terminal print the command for that."""
    from tpujob.cli.commands.browser import sign_in
    from tpujob.config import context
    from tpujob.errors import Unauthorized
    from tpujob.wiring import client

    configured = context.current(settings).sign_in
    try:
        api = client.running_client(settings)
        assert api is not None
        caller = api.whoami()
        say(f"You are {clean(caller['name'])} there, {clean(caller['role'])}.")
    except Unauthorized:
        if configured.account:
            raise
        if not get_screen().asks or not configured.client_id:
            say("Next:\n  tpujob login")
            return
        sign_in(settings)


# Init ----------------------------------------------------------------------------------------------------------------


def init(
    name: Annotated[str, option("NAME", "Default: after the project.")] = "",
    project: Annotated[str, option("ID", "Default: that of gcloud.")] = "",
    zone: Annotated[
        list[str] | None, option("ZONE", "Zone with TPUs; repeatable, preferred first.")
    ] = None,
    bucket: Annotated[
        list[str] | None,
        option("[REGION=]gs://NAME", "Bucket; default REGION: that of the first zone; repeatable."),
    ] = None,
    network: Annotated[str, option("NAME", "Default: the project's default network.")] = "",
    subnetwork: Annotated[str, option("NAME", "Subnetwork of slices.")] = "",
    service_account: Annotated[str, option("EMAIL", "Service account of programs.")] = "",
    ssh: Annotated[
        str,
        option(
            "[external|internal|iap]",
            "SSH to hosts; default: internal within Google Cloud, else iap.",
        ),
    ] = "",
    store: Annotated[str, option("[sqlite|firestore]", "Store of jobs.")] = "sqlite",
    grant: Annotated[list[str] | None, option("TYPE:ZONE:PRICING:CHIPS", "Free chips.")] = None,
    grant_file: Annotated[
        Path | None, option("FILE", "E-mail of the TPU Research Cloud; -: standard input.")
    ] = None,
    force: Annotated[bool, flag("Overwrite a context.", "--force")] = False,
    as_json: Json = False,
) -> None:
    """Write a context: where in Google Cloud jobs run."""
    from tpujob.config import context
    from tpujob.config.settings import choose, load
    from tpujob.domain.hardware import accelerators
    from tpujob.wiring import client

    settings = load()
    grants = _grants(grant or (), grant_file)
    project = project or _ask("Project", option="--project", default=client.usual_project())
    zones = list(zone or ()) or _ask_zones(grants)
    default_name = project.rpartition(":")[2][:30].strip("-")
    name = name or _ask("Name of the context", option="--name", default=default_name)
    if (path := context.path_of(settings, name)).exists() and not force:
        hint = f"Edit {path}, or overwrite it with --force."
        raise BadRequest(f"there is a context {name!r} already", hint=hint)
    default_ssh, reason = context.way_in(
        emulated=bool(settings.tpu_endpoint), in_google_cloud=client.in_google_cloud()
    )
    made = context.make(
        {
            "name": name,
            "project": project,
            "zones": zones,
            "buckets": _buckets(bucket or (), zones),
            "network": network,
            "subnetwork": subnetwork,
            "service_account": service_account,
            "ssh": ssh or default_ssh,
            "store": store,
            "grants": grants,
        }
    )
    for doubt in accelerators.doubts((), made.zones):
        note(f"warning: {doubt}")
    path = context.write(settings, made)
    choose(settings, made.name)
    if as_json:
        say_json(made.model_dump(mode="json"))
        return
    say(f"{path}:\n")
    say("\n".join(f"  {line}" for line in context.text(made).splitlines()))
    if not ssh:
        say(f"\nHosts are reached by `ssh: {default_ssh}`: {reason}. Another way: --ssh.")
    say(f"\nJobs now run in {_describe(settings, made.name)}.\nNext:")
    for region in [region for region in made.regions if region not in made.buckets][:1]:
        say(f"  tpujob bucket create --region {region}")
    say("  tpujob doctor")


def _grants(options: Sequence[str], file: Path | None) -> list[dict[str, Any]]:
    from tpujob.config import files
    from tpujob.doctor import quota

    grants = [quota.parse_option(text) for text in options]
    if file is not None:
        letter = sys.stdin.read() if str(file) == "-" else files.read(file)
        grants += quota.parse_letter(letter)
    return grants


def _ask_zones(grants: Sequence[dict[str, Any]]) -> list[str]:
    """Return the zones that a person types; without a terminal those of the grants. Raises BadRequest for none."""
    granted = " ".join(dict.fromkeys(str(grant["zone"]) for grant in grants))
    answer = _ask("Zones, the preferred first", option="--zone", default=granted)
    return answer.replace(",", " ").split()


def _buckets(options: Sequence[str], zones: Sequence[str]) -> dict[str, str]:
    """Return the bucket of each region. Raises BadRequest for two buckets of one region."""
    from tpujob.domain.hardware.accelerators import region_of

    buckets: dict[str, str] = {}
    for text in options:
        region, equals, bucket = text.partition("=")
        if not equals:
            region, bucket = region_of(zones[0]) if zones else "", text
        if region in buckets:
            raise BadRequest(
                f"two buckets are given for {region}", hint="Write --bucket REGION=gs://NAME."
            )
        buckets[region] = bucket.rstrip("/")
    return buckets


def _ask(prompt: str, *, option: str, default: str) -> str:
    """Return a person's answer; without a terminal the default. Raises BadRequest when there is no default."""
    if get_screen().asks:
        return str(typer.prompt(prompt, default=default or None, err=True)).strip()
    if not default:
        raise BadRequest(f"{option} is missing", hint="On a terminal tpujob would ask for it.")
    return default
