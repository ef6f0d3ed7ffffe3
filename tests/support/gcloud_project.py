"""A Google Cloud project for the scripts of `deploy/`: stand-ins for gcloud and curl on their PATH, with one state.

A command that gcloud's own parser refuses is refused here, too, where the Cloud SDK is installed; without it, every
command or flag that is not declared below is. What commands answer is taken from Google's error texts as far as the
scripts depend on them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socketserver
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import gcloud

PROJECT, NUMBER, REGION = "my-lab-4711", "123456789", "europe-west4"
#: flags that the scripts pass to each command
COMMON = (f"--project={PROJECT}", "--quiet", "--format=none")
CLIENT = r"""#!/bin/bash
[ "${0##*/}" = curl ] && config=$(cat)
exec 3<>"/dev/tcp/127.0.0.1/$STAND_IN"
for word in "${0##*/}" "$@" "${config:-}"; do printf '%s\037' "$word"; done >&3
printf '\n' >&3
read -r code <&3
while IFS= read -r line <&3; do
  case $line in 2*) echo "${line#2}" >&2 ;; *) echo "${line#1}" ;; esac
done
exit "$code"
"""
#: requests that every run repeats, so that a cut between two of them equals a cut after the last
REPEATED = ("add-iam-policy-binding", "composite", "curl")
LOOKS = ("describe", "list", "list-configs", "access", "print-access-token")
_APIS = {"iam": "iam", "firestore": "firestore", "secrets": "secretmanager", "run": "run", "builds": "cloudbuild",
         "scheduler": "cloudscheduler", "artifacts": "artifactregistry", "storage": "storage",
         "compute": "compute", "monitoring": "monitoring"}  # fmt: skip


#: service -> the name in its agent's address, where that is another one
_AGENTS = {"monitoring.googleapis.com": "monitoring-notification"}


class Refused(Exception):
    """A refusal, with the text and the exit code of gcloud."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class State:
    """The contents of the project."""

    apis: set[str] = field(default_factory=set[str])
    accounts: set[str] = field(default_factory=set[str])
    roles: dict[str, bool] = field(default_factory=dict[str, bool])  #: name: whether it is deleted
    #: resource, member, role, condition
    bindings: set[tuple[str, str, str, str]] = field(default_factory=set[tuple[str, str, str, str]])
    databases: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    indexes: set[str] = field(default_factory=set[str])
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    #: versions, the oldest first; None: destroyed
    secrets: dict[str, list[str | None]] = field(default_factory=dict[str, "list[str | None]"])
    replication: dict[str, str] = field(default_factory=dict[str, str])
    buckets: dict[str, str] = field(default_factory=dict[str, str])  #: for sources: where it is
    repositories: dict[str, Any] = field(default_factory=dict[str, Any])
    services: dict[str, list[Any]] = field(default_factory=dict[str, "list[Any]"])  #: revisions
    traffic: dict[str, str] = field(default_factory=dict[str, str])
    jobs: dict[str, str] = field(default_factory=dict[str, str])  #: of Cloud Scheduler: their URLs
    #: subnetworks with Private Google Access; routers with their Cloud NAT, if they have one
    private: set[str] = field(default_factory=set[str])
    routers: dict[str, str] = field(default_factory=dict[str, str])
    #: of Cloud Monitoring, by kind and name
    watches: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any])


class Parser:
    """gcloud's own parser, in a process of the Cloud SDK's Python."""

    def __init__(self) -> None:
        sdk = gcloud.folder()
        python = sdk / "platform" / "bundledpythonunix" / "bin" / "python3"
        script = Path(__file__).with_name("gcloud_parser.py")
        self._home = tempfile.TemporaryDirectory()
        self._known: dict[str, str] = {}
        self._process = subprocess.Popen(
            [python if python.exists() else "python3", "-S", script, sdk / "lib"],
            env={"HOME": self._home.name, "PATH": os.environ["PATH"], "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def refusal(self, **request: Any) -> str:
        """Return the reason for which gcloud or Google's API refuses the request; empty: accepted."""
        assert self._process.stdin
        assert self._process.stdout
        line = json.dumps(request)
        key = line + _contents(request)
        if key not in self._known:
            print(line, file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
            assert answer, "gcloud's parser has ended"
            self._known[key] = json.loads(answer)
        return self._known[key]

    def stop(self) -> None:
        self._process.communicate()
        self._home.cleanup()


def _contents(request: dict[str, Any]) -> str:
    """Return the texts of the files that a command names: the same words may stand for another file."""
    folder = Path(request.get("folder", "."))
    files = [folder / word.rpartition("=")[2] for word in request.get("words", ())]
    return "".join(file.read_text() for file in files if file.is_file())


@pytest.fixture(scope="session")
def parser() -> Iterator[Parser | None]:
    """Yield the parser; None: the Cloud SDK is not installed."""
    if shutil.which("gcloud") is None:
        yield None
        return
    parser = Parser()
    yield parser
    parser.stop()


Handler = Callable[..., str | None]
_COMMANDS: dict[str, tuple[Handler, set[str]]] = {}


def _command(name: str, others: str = "") -> Callable[[Handler], Handler]:
    """Declare the handler of a command, which takes its keyword-only parameters as flags, and `others`."""

    def declare(handler: Handler) -> Handler:
        parameters = signature(handler).parameters.values()
        named = {p.name.replace("_", "-") for p in parameters if p.kind is p.KEYWORD_ONLY}
        _COMMANDS[name] = handler, named | {*others.split()}
        return handler

    return declare


class Project:
    """A project that answers commands inside its block."""

    def __init__(self, folder: Path, parser: Parser | None) -> None:
        self.folder, self._parser = folder, parser
        self.state = State()
        self.calls: list[list[str]] = []
        self.malformed: list[str] = []  #: commands that the parser refused
        self.slept: list[float] = []
        self.lag = 0  #: number of reads for which a new account, grant or API is unknown
        #: returns the error of a command, or None
        self.refuse: Callable[[str], str | None] = lambda _: None
        self.cut_after = 0  #: the script is killed after this many steps; 0: never
        self.script = 0  #: the process id of the script that runs
        self.lock = threading.Lock()
        self.steps = 0  #: number of changes so far, without REPEATED requests
        self._new = Counter[str]()

    def __enter__(self) -> Project:
        project = self

        class Call(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                program, *words, _ = self.rfile.readline().decode().split("\x1f")
                with project.lock:
                    code, out, err = project._answer(program, words)
                lines = [f"1{line}" for line in out.splitlines()]
                lines += [f"2{line}" for line in err.splitlines()]
                self.wfile.write("\n".join([str(code), *lines, ""]).encode())

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Call)
        threading.Thread(target=self._server.serve_forever, args=(0.01,)).start()
        bin = self.folder / "bin"
        bin.mkdir(exist_ok=True)
        for name in ("gcloud", "curl", "sleep"):
            (bin / name).write_text(CLIENT)
            (bin / name).chmod(0o755)
        self.env = {"STAND_IN": str(self._server.server_address[1])}
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, program: str, words: list[str]) -> tuple[int, str, str]:
        if program == "sleep":
            self.slept.append(float(words[0]))
            return 0, "", ""
        try:
            out = self._curl(words) if program == "curl" else self._gcloud(words[:-1])
        except Refused as refused:
            return refused.code, "", f"ERROR: ({program}) {refused}"
        if not {*LOOKS, *REPEATED} & {program, *words}:
            self.steps += 1
            if self.steps == self.cut_after:
                os.killpg(self.script, signal.SIGKILL)
        return 0, out, ""

    def _gcloud(self, words: list[str]) -> str:
        flags = [word for word in words if word.startswith("--") and word not in COMMON]
        names = [word for word in words if not word.startswith("--")]
        self.calls.append([word for word in words if word not in COMMON])
        length = next((n for n in range(len(names), 0, -1) if " ".join(names[:n]) in _COMMANDS), 0)
        handler, allowed = _COMMANDS.get(" ".join(names[:length]), (None, set[str]()))
        options = dict(flag[2:].partition("=")[::2] for flag in flags)
        wrong = "" if handler else "unknown command"
        wrong = wrong or " ".join(sorted(options.keys() - allowed - {"format"}))
        if self._parser:
            wrong = wrong or self._parser.refusal(folder=str(self.folder), words=words)
        if wrong or not handler:
            self.malformed.append(f"{' '.join(words)}: {wrong}")
            raise Refused(wrong, code=2)
        if text := self.refuse(" ".join(words)):
            raise Refused(text)
        api = _APIS.get(next(name for name in names if name not in ("alpha", "beta")), "")
        if api and (api not in self.state.apis or self._is_new(api)):
            text = f"{api} has not been used in project {NUMBER} before or it is disabled"
            raise Refused(f"PERMISSION_DENIED: {text}. SERVICE_DISABLED")
        keywords = {name.replace("-", "_"): value for name, value in options.items()}
        return handler(self, *names[length:], **keywords) or ""

    def _is_new(self, name: str) -> bool:
        """Return whether Google does not know a new resource yet."""
        self._new[name] -= 1
        return self._new[name] >= 0

    def _has(self, name: str, where: Any) -> None:
        if name not in where:
            raise Refused(f"NOT_FOUND: {name} not found")

    def _make(self, name: str, where: Any) -> None:
        if name in where:
            raise Refused(f"ALREADY_EXISTS: {name} already exists")
        self._new[name] = self.lag

    # Commands --------------------------------------------------------------------------------------------------------

    @_command("projects describe")
    def _project(self, _id: str, *, format: str = "") -> str:
        return NUMBER

    @_command("auth print-access-token")
    def _token(self) -> str:
        return "a-token"

    @_command("services enable")
    def _enable(self, *names: str) -> None:
        for name in {name.partition(".")[0] for name in names} - self.state.apis:
            self._new[name] = self.lag
            self.state.apis.add(name)

    @_command("beta services identity create")
    def _identity(self, *, service: str) -> None:
        agent = f"gcp-sa-{_AGENTS.get(service, service.partition('.')[0])}"
        self.state.accounts.add(f"service-{NUMBER}@{agent}.iam.gserviceaccount.com")

    @_command("iam service-accounts create")
    def _new_account(self, id: str, *, display_name: str) -> None:
        assert re.fullmatch(r"[a-z][-a-z0-9]{4,28}[a-z0-9]", id), id
        email = f"{id}@{PROJECT}.iam.gserviceaccount.com"
        self._make(email, self.state.accounts)
        self.state.accounts.add(email)

    @_command("iam service-accounts list")
    def _accounts(self, *, filter: str, format: str) -> str:
        pattern = filter.removeprefix("email~")
        return "\n".join(sorted(a for a in self.state.accounts if re.search(pattern, a)))

    @_command("iam service-accounts delete")
    def _no_account(self, email: str) -> None:
        self._has(email, self.state.accounts)
        self.state.accounts.discard(email)
        # on other resources they stay, and give nothing
        self.state.bindings = {
            (
                on,
                member.replace(f"serviceAccount:{email}", f"deleted:serviceAccount:{email}"),
                *rest,
            )
            for on, member, *rest in self.state.bindings
            if email not in on
        }

    @_command("iam roles describe")
    def _role(self, name: str, *, format: str = "") -> str:
        self._has(name, self.state.roles)
        deleted = "True" if self.state.roles[name] else ""
        return f"projects/{PROJECT}/roles/{name}\t{deleted}"

    @_command("iam roles create")
    def _new_role(self, name: str, *, file: str) -> None:
        self._make(name, self.state.roles)
        self.state.roles[name] = False

    @_command("iam roles update")
    def _role_again(self, name: str, *, file: str) -> None:
        self._has(name, [role for role, deleted in self.state.roles.items() if not deleted])

    @_command("iam roles undelete")
    def _role_back(self, name: str) -> None:
        self._has(name, self.state.roles)
        self.state.roles[name] = False

    @_command("iam roles delete")
    def _no_role(self, name: str) -> None:
        self._role_again(name, file="")
        self.state.roles[name] = True

    @_command("firestore databases create", "delete-protection enable-pitr")
    def _new_database(self, *, database: str, location: str, type: str, **switches: str) -> None:
        self._make(database, self.state.databases)
        self.state.databases[database] = tuple(sorted(switches))

    @_command("firestore databases update", "delete-protection enable-pitr")
    def _database_again(self, *, database: str, **switches: str) -> None:
        self._has(database, self.state.databases)
        self.state.databases[database] = tuple(sorted(switches))

    @_command(
        "firestore indexes composite create", "query-scope collection-group field-config async"
    )
    def _index(self, *, database: str, **_: str) -> None:
        self._has(database, self.state.databases)
        index = " ".join(word for word in self.calls[-1] if "field-config" in word or "group" in word)  # fmt: skip
        self._make(index, self.state.indexes)
        self.state.indexes.add(index)

    @_command("secrets list")
    def _secrets(self, *, filter: str, format: str = "") -> str:
        return "\n".join(name for name in self.state.secrets if name.startswith("tpujob-s-"))

    @_command("secrets create")
    def _new_secret(self, name: str, *, replication_policy: str, locations: str = "") -> None:
        self._make(name, self.state.secrets)
        assert bool(locations) == (replication_policy == "user-managed")
        self.state.secrets[name], self.state.replication[name] = [], locations

    @_command("secrets versions add")
    def _version(self, name: str, *, data_file: str) -> None:
        self._has(name, self.state.secrets)
        self.state.secrets[name].append((self.folder / data_file).read_text())

    @_command("secrets versions access")
    def _newest(self, version: str, *, secret: str) -> str:
        self._has(secret, self.state.secrets)
        if not self.state.secrets[secret]:
            raise Refused("NOT_FOUND: Secret Version [versions/latest] not found")
        return self.state.secrets[secret][-1] or ""

    @_command("secrets versions list")
    def _versions(self, name: str, *, filter: str, sort_by: str, format: str) -> str:
        assert (filter, sort_by) == ("state!=DESTROYED", "~createTime")
        numbers = [str(n) for n, text in enumerate(self.state.secrets[name], 1) if text is not None]
        return "\n".join(reversed(numbers))

    @_command("secrets versions destroy")
    def _no_version(self, version: str, *, secret: str) -> None:
        self.state.secrets[secret][int(version) - 1] = None

    @_command("artifacts repositories create")
    def _new_repository(self, name: str, *, location: str, repository_format: str) -> None:
        self._make(name, self.state.repositories)
        self.state.repositories[name] = None

    @_command("artifacts repositories set-cleanup-policies")
    def _cleanup(self, name: str, *, location: str, policy: str, no_dry_run: str) -> None:
        self._has(name, self.state.repositories)
        self.state.repositories[name] = json.loads(Path(policy).read_text())

    @_command("storage buckets create", "uniform-bucket-level-access public-access-prevention")
    def _new_bucket(self, url: str, *, location: str, **_: str) -> None:
        self._make(url, self.state.buckets)
        self.state.buckets[url] = location

    @_command("builds submit")
    def _build(self, folder: str, *, config: str, substitutions: str, service_account: str) -> None:
        # where it is missing, gcloud makes it, with no location
        self.state.buckets.setdefault(f"gs://{PROJECT}_cloudbuild", "US")
        self._has("tpujob", self.state.repositories)
        if self._is_new("build"):
            raise Refused(
                "INVALID_ARGUMENT: could not resolve source: googleapi: Error 403: no access"
            )

    @_command("run services describe")
    def _service(self, name: str, *, region: str, format: str = "") -> str:
        self._has_service(name)
        url = f"https://{name}-yuquaflafa-ez.a.run.app"
        numbered = f"https://{name}-{NUMBER}.{REGION}.run.app"
        return (
            f'{url}\trun.googleapis.com/ingress=all;run.googleapis.com/urls=["{numbered}", "{url}"]'
        )

    @_command("run services replace")
    def _replace(self, file: str, *, region: str) -> None:
        if not any(self.state.secrets["tpujob-context"]) or self._is_new("secret"):
            raise Refused("Permission denied on secret: tpujob-context/versions/latest")
        service = yaml.safe_load(Path(file).read_text())
        name = service["metadata"]["name"]
        self.state.services.setdefault(name, []).append(service)
        self.state.traffic[name] = "latest" if service["spec"]["traffic"][0]["latestRevision"] else ""  # fmt: skip

    @_command("run services delete")
    def _no_service(self, name: str, *, region: str) -> None:
        self._has_service(name)
        del self.state.services[name]

    @_command("run services update-traffic")
    def _traffic(
        self, name: str, *, region: str, to_revisions: str = "", to_latest: str = "x"
    ) -> None:
        self._has_service(name)
        self.state.traffic[name] = to_revisions or ("latest" if not to_latest else "")

    @_command("run revisions list")
    def _revisions(self, *, region: str, service: str) -> str:
        return "\n".join(f"{service}-{n:05}-abc" for n in range(len(self.state.services[service]), 0, -1))  # fmt: skip

    def _has_service(self, name: str) -> None:
        if name not in self.state.services:
            raise Refused(f"Cannot find service [{name}]")

    _SCHEDULED = "location schedule http-method oidc-service-account-email oidc-token-audience attempt-deadline"

    @_command("scheduler jobs create http", _SCHEDULED)
    def _new_job(self, name: str, *, uri: str, **_: str) -> None:
        self._make(name, self.state.jobs)
        self.state.jobs[name] = uri

    @_command("scheduler jobs update http", _SCHEDULED)
    def _job_again(self, name: str, *, uri: str, **_: str) -> None:
        self._has(name, self.state.jobs)
        self.state.jobs[name] = uri

    # The network

    @_command("compute networks subnets update", "enable-private-ip-google-access")
    def _subnet(self, name: str, *, region: str, **_: str) -> None:
        self.state.private.add(f"{region}/{name}")

    @_command("compute routers list")
    def _routers(self, *, filter: str, regions: str = "", format: str) -> str:
        if name := filter.removeprefix("name="):
            own = [key.partition("/")[0] for key in self.state.routers if key.endswith(f"/{name}")]
        if regions:
            assert filter == "network~/default$ AND nats:*", filter
            here = self.state.routers.items()
            own = [key for key, nat in here if nat and key.startswith(f"{regions}/")]
        return "\n".join(own)

    @_command("compute routers describe")
    def _router(self, name: str, *, region: str) -> None:
        self._has(f"{region}/{name}", self.state.routers)

    @_command("compute routers create")
    def _new_router(self, name: str, *, region: str, network: str) -> None:
        self._make(f"{region}/{name}", self.state.routers)
        self.state.routers[f"{region}/{name}"] = ""

    @_command("compute routers delete")
    def _no_router(self, name: str, *, region: str) -> None:
        self._has(f"{region}/{name}", self.state.routers)
        del self.state.routers[f"{region}/{name}"]

    @_command(
        "compute routers nats create", "auto-allocate-nat-external-ips nat-all-subnet-ip-ranges"
    )
    def _new_nat(self, name: str, *, region: str, router: str, **_: str) -> None:
        self._has(f"{region}/{router}", self.state.routers)
        self.state.routers[f"{region}/{router}"] = name

    # Monitoring

    def _watch(self, kind: str, content: Any) -> None:
        number = self.steps + 1
        self.state.watches[kind, f"projects/{PROJECT}/{kind}/id-of-{number}"] = content

    def _watched(self, kind: str) -> str:
        return "\n".join(name for found, name in self.state.watches if found == kind)

    def _unwatch(self, kind: str, name: str) -> None:
        self._has((kind, name), self.state.watches)
        named = [
            text for text in self.state.watches.values() if name.rpartition("/")[2] in str(text)
        ]
        if named:
            raise Refused(f"INVALID_ARGUMENT: {name} is named by {named}")
        del self.state.watches[kind, name]

    @_command(
        "monitoring uptime create",
        "resource-type protocol path period timeout validate-ssl service-agent-auth",
    )
    def _new_check(self, display: str, *, resource_labels: str, **flags: str) -> None:
        self._watch("uptimeCheckConfigs", (resource_labels, flags))

    @_command("monitoring uptime list-configs")
    def _checks(self, *, filter: str, format: str) -> str:
        return self._watched("uptimeCheckConfigs")

    @_command("monitoring uptime delete")
    def _no_check(self, name: str) -> None:
        self._unwatch("uptimeCheckConfigs", name)

    @_command("beta monitoring channels create", "display-name type")
    def _new_channel(self, *, channel_labels: str, **_: str) -> None:
        self._watch("notificationChannels", channel_labels)

    @_command("beta monitoring channels update")
    def _channel_again(self, name: str, *, update_channel_labels: str) -> None:
        self.state.watches["notificationChannels", name] = update_channel_labels

    @_command("beta monitoring channels list")
    def _channels(self, *, filter: str, format: str) -> str:
        return self._watched("notificationChannels")

    @_command("beta monitoring channels delete")
    def _no_channel(self, name: str) -> None:
        self._unwatch("notificationChannels", name)

    @_command("alpha monitoring policies create")
    def _new_policy(self, *, policy_from_file: str) -> None:
        self._watch("alertPolicies", json.loads(Path(policy_from_file).read_text()))

    @_command("alpha monitoring policies list")
    def _policies(self, *, filter: str, format: str) -> str:
        return self._watched("alertPolicies")

    @_command("alpha monitoring policies delete")
    def _no_policy(self, name: str) -> None:
        self._unwatch("alertPolicies", name)

    def _bind(
        self, resource: str, add: bool, member: str, role: str, condition: str | None
    ) -> None:
        kind, _, email = member.partition(":")
        on = {binding for binding in self.state.bindings if binding[0] == resource}
        if condition is None and any(conditional for *_, conditional in on):
            raise Refused(
                "Adding a binding without specifying a condition to a policy containing conditions is prohibited in "
                "non-interactive mode. Run the command again with `--condition=None`"
            )
        binding = (resource, member, role, condition if condition not in (None, "None") else "")
        if not add:
            if binding not in on:
                raise Refused("Policy bindings with the specified principal and role not found!")
            self.state.bindings.discard(binding)
            return
        unknown = email not in self.state.accounts or self._is_new(email)
        if kind == "serviceAccount" and unknown:
            raise Refused(f"INVALID_ARGUMENT: Service account {email} does not exist.")
        if "tpujob-build@" in member:
            self._new["build"] = self.lag
        if resource == "secrets tpujob-context":
            self._new["secret"] = self.lag
        self.state.bindings.add(binding)

    def _curl(self, words: list[str]) -> str:
        *_, url, config = words
        at = re.fullmatch(
            rf"https://firestore\.googleapis\.com/v1/projects/{PROJECT}/databases/([^/]+)"
            r"/collectionGroups/(\w+)/fields/(\w+)\?updateMask=indexConfig", url,
        )  # fmt: skip
        assert at, url
        assert config == 'header = "Authorization: Bearer a-token"'
        assert {"PATCH", f"x-goog-user-project: {PROJECT}", "--config"} <= {*words}
        body = json.loads(words[words.index("--data") + 1])
        refusal = self._parser.refusal(field=body) if self._parser else ""
        if refusal:
            self.malformed.append(f"{url}: {refusal}")
        database, group, name = at.groups()
        if refusal or database not in self.state.databases or self._is_new(database):
            return json.dumps({"error": {"status": "PERMISSION_DENIED", "message": refusal}})
        self.state.fields[f"{group}/{name}"] = body
        return json.dumps({"name": f"projects/{PROJECT}/databases/{database}/operations/1"})


def _declare_lookups() -> None:
    """Declare `describe` and `delete` of resources that have only a name."""

    def handler(collection: str, *, delete: bool) -> Handler:
        def do(project: Project, name: str = "", **flags: str) -> None:
            resources, key = getattr(project.state, collection), name or flags["database"]
            project._has(key, resources)
            if delete:
                del resources[key]

        return do

    for kind, collection, flag in (
        ("secrets", "secrets", ""),
        ("artifacts repositories", "repositories", "location"),
        ("scheduler jobs", "jobs", "location"),
        ("firestore databases", "databases", "database"),
        ("iam service-accounts", "accounts", ""),
        ("storage buckets", "buckets", ""),
    ):
        _COMMANDS[f"{kind} describe"] = handler(collection, delete=False), {*flag.split()}
        if collection in ("secrets", "repositories", "jobs"):
            _COMMANDS[f"{kind} delete"] = handler(collection, delete=True), {*flag.split()}


def _declare_bindings() -> None:
    kinds = {
        "projects": "condition",
        "storage buckets": "condition condition-from-file",
        "iam service-accounts": "",
        "secrets": "",
        "artifacts repositories": "location",
        "run services": "region",
        "beta iap web": "resource-type service region",
    }

    def handler(kind: str, verb: str) -> Handler:
        def bind(project: Project, name: str = "", **flags: str) -> None:
            condition = flags.get("condition")
            if file := flags.get("condition_from_file"):
                condition = str(yaml.safe_load(Path(file).read_text()))
            if kind == "iam service-accounts":
                project._has(name, project.state.accounts)
            if kind == "run services":
                project._has_service(name)
            resource = " ".join((kind, name or flags["service"]))
            project._bind(resource, verb == "add", flags["member"], flags["role"], condition)

        return bind

    for kind, flags in kinds.items():
        for verb in ("add", "remove"):
            name = f"{kind} {verb}-iam-policy-binding"
            _COMMANDS[name] = handler(kind, verb), {"member", "role", *flags.split()}


_declare_lookups()
_declare_bindings()
