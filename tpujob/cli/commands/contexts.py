"""`tpujob init` and `tpujob use`: say where jobs run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpujob.cli.options import Json, argument, flag, option
from tpujob.cli.output import current_screen, note, say, say_json
from tpujob.domain.text import clean
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.config.context import Context
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
    from tpujob.config import context, settings

    now = settings.load()
    if not where:
        _list(now, as_json=as_json)
        return
    deployed = "://" in where
    if where.startswith(("/", "unix:")):
        where = _served(now, where.removeprefix("unix:"), name)
    elif deployed:
        given = {"client_id": client_id, "client_secret": client_secret, "account": account}
        where = _deployed(now, where, name, given, door)
    elif where != settings.LOCAL:
        context.read(now, where)
    settings.choose(now, where)
    chosen = settings.load()
    if chosen.context != where:
        note(f"tpujob: TPUJOB_CONTEXT is set, so this terminal keeps using {chosen.context}")
    say(f"Jobs now run in {_line(now, where)}.")
    if deployed:
        _meet(settings.load(now.state, context=where))


def _list(now: Settings, *, as_json: bool) -> None:
    from tpujob.config import context, settings

    names = [settings.LOCAL, *context.names(now)]
    if as_json:
        say_json([{"name": name, "current": name == now.context} for name in names])
        return
    for name in names:
        say(f"{'*' if name == now.context else ' '} {_line(now, name)}")
    if len(names) == 1:
        say("\nTo run jobs in Google Cloud: tpujob init")


def _line(now: Settings, name: str) -> str:
    """Describe one context in a few words, or what is wrong with its file."""
    from tpujob.config import context, settings
    from tpujob.errors import TpujobError

    if name == settings.LOCAL:
        return "local: the emulator on this machine"
    try:
        found = context.read(now, name)
    except TpujobError as error:
        return f"{name}: {error.message}"
    if found.backend:
        return f"{name}: the backend at {found.backend}"
    return f"{name}: project {found.project}, {', '.join(found.zones)}"


def _served(now: Settings, given: str, name: str) -> str:
    """Write a context for the backend at that socket, once it has recognised this user; returns its name."""
    from tpujob.config import context, shared_socket
    from tpujob.wiring import client

    path = shared_socket.checked(Path(given))
    uid, me = client.greet_socket(path)
    made = context.for_backend(now, f"unix:{path}", name, uid=uid)
    context.write(now, made)
    say(
        f"{shared_socket.login_of(uid)} runs that backend; there you are {clean(me['name'])}, {me['role']}."
    )
    return made.name


def _deployed(now: Settings, url: str, name: str, given: dict[str, str], door: str) -> str:
    """Write a context for that backend, with what is given of how one signs in there; returns its name."""
    from tpujob.config import context

    url = url.rstrip("/")
    known = context.for_backend(now, url, name).model_dump(mode="json")
    sign_in = known["sign_in"] | {option: text for option, text in given.items() if text}
    made = context.make(known | {"sign_in": sign_in, "door": door or known["door"]})
    context.write(now, made)
    return made.name


def _meet(chosen: Settings) -> None:
    """Sign in if that is still needed and a person can; else print the next step."""
    from tpujob.cli.commands.browser import sign_in
    from tpujob.config import context
    from tpujob.errors import Unauthorized
    from tpujob.wiring import client

    configured = context.current(chosen).sign_in
    try:
        there = client.running_client(chosen)
        assert there is not None
        who = there.whoami()
        say(f"You are {clean(who['name'])} there, {clean(who['role'])}.")
    except Unauthorized:
        if configured.account:
            raise
        if not current_screen().asks or not configured.client_id:
            say("Next:\n  tpujob login")
            return
        sign_in(chosen)


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
    from tpujob.config import context, settings
    from tpujob.domain.hardware import accelerators
    from tpujob.wiring import client

    now = settings.load()
    grants = _grants(grant or (), grant_file)
    project = project or _project()
    zones = list(zone or ()) or _zones(grants)
    name = name or _ask("Name of the context", option="--name", default=_short(project))
    if (path := context.path_of(now, name)).exists() and not force:
        hint = f"Edit {path}, or overwrite it with --force."
        raise BadRequest(f"there is a context {name!r} already", hint=hint)
    chosen, why = context.way_in(
        emulated=bool(now.tpu_endpoint), in_google_cloud=client.in_google_cloud()
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
            "ssh": ssh or chosen,
            "store": store,
            "grants": grants,
        }
    )
    for doubt in accelerators.doubts((), made.zones):
        note(f"warning: {doubt}")
    path = context.write(now, made)
    settings.choose(now, made.name)
    if as_json:
        say_json(made.model_dump(mode="json"))
        return
    say(f"{path}:\n")
    say("\n".join(f"  {line}" for line in context.text(made).splitlines()))
    if not ssh:
        say(f"\nHosts are reached by `ssh: {chosen}`: {why}. Another way: --ssh.")
    say(f"\nJobs now run in {_line(now, made.name)}.\nNext:")
    say("\n".join(f"  {command}" for command in _next(made)))


def _next(made: Context) -> list[str]:
    missing = [region for region in made.regions if region not in made.buckets]
    commands = [f"tpujob bucket create --region {region}" for region in missing[:1]]
    return [*commands, "tpujob doctor"]


def _grants(given: Sequence[str], file: Path | None) -> list[dict[str, Any]]:
    from tpujob.config import files
    from tpujob.doctor import quota

    found = [quota.of_option(text) for text in given]
    if file is not None:
        letter = sys.stdin.read() if str(file) == "-" else files.read(file)
        found += quota.of_letter(letter)
    return found


def _project() -> str:
    from tpujob.wiring import client

    return _ask("Project", option="--project", default=client.usual_project())


def _zones(grants: Sequence[dict[str, Any]]) -> list[str]:
    usual = list(dict.fromkeys(str(grant["zone"]) for grant in grants))
    if usual and not current_screen().asks:
        return usual
    answer = _ask("Zones, the preferred first", option="--zone", default=" ".join(usual))
    return answer.replace(",", " ").split()


def _buckets(given: Sequence[str], zones: Sequence[str]) -> dict[str, str]:
    from tpujob.domain.hardware.accelerators import region_of

    found: dict[str, str] = {}
    for text in given:
        region, equals, bucket = text.partition("=")
        if not equals:
            region, bucket = region_of(zones[0]) if zones else "", text
        if region in found:
            raise BadRequest(
                f"two buckets are given for {region}", hint="Write --bucket REGION=gs://NAME."
            )
        found[region] = bucket.rstrip("/")
    return found


def _short(project: str) -> str:
    """Return a name for the context, after its project."""
    return project.rpartition(":")[2][:30].strip("-")


def _ask(what: str, *, option: str, default: str = "") -> str:
    """Return a person's answer; without a terminal the default. Raises BadRequest when there is none."""
    if current_screen().asks:
        return str(typer.prompt(what, default=default or None, err=True)).strip()
    if not default:
        raise BadRequest(f"{option} is missing", hint="On a terminal tpujob would ask for it.")
    return default
