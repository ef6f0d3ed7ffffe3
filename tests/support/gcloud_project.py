"""A Google Cloud project for the scripts of `deploy/`: stand-ins for gcloud and curl on their PATH, with one state.

A resource is a name in a collection of `State`: it is created once, and is described, updated and deleted only where it
is there. Commands that do more have a function below. A command that gcloud's own parser refuses is refused here, too,
where the Cloud SDK is installed. What commands answer is taken from Google's error texts as far as the scripts depend
on them.
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
Flags = dict[str, str]


class Refused(Exception):
    """A refusal, with the text and the exit code of gcloud."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class State:
    """The contents of the project: of most collections the names, each with the one flag that tests look at."""

    apis: set[str] = field(default_factory=set[str])
    accounts: dict[str, str] = field(default_factory=dict[str, str])
    roles: dict[str, bool] = field(default_factory=dict[str, bool])  #: name: whether it is deleted
    #: resource, member, role, condition
    bindings: set[tuple[str, str, str, str]] = field(default_factory=set[tuple[str, str, str, str]])
    databases: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    indexes: dict[str, str] = field(default_factory=dict[str, str])
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
    #: of Cloud Monitoring: their flags by their names, which have the kind in them
    watches: dict[str, Flags] = field(default_factory=dict[str, Flags])


#: kind of resource -> its collection, and what is kept of the flags that make it
_KINDS: dict[str, tuple[str, Callable[[Flags], Any]]] = {
    "iam service-accounts": ("accounts", lambda _: ""),
    "iam roles": ("roles", lambda _: False),
    "firestore databases": ("databases", lambda flags: tuple(sorted(f for f in flags if not flags[f]))),
    "secrets": ("secrets", lambda _: []),
    "storage buckets": ("buckets", lambda flags: flags["location"]),
    "artifacts repositories": ("repositories", lambda _: None),
    "run services": ("services", lambda _: []),
    "scheduler jobs": ("jobs", lambda flags: flags["uri"]),
    "compute routers": ("routers", lambda _: ""),
}  # fmt: skip
_MONITORED = {
    "uptime": "uptimeCheckConfigs", "channels": "notificationChannels", "policies": "alertPolicies"
}  # fmt: skip
Function = Callable[..., str | None]
_FUNCTIONS: dict[str, Function] = {}


def _command(*names: str) -> Callable[[Function], Function]:
    """Declare what these commands do. The function takes the words after their names, and the flags."""

    def declare(function: Function) -> Function:
        for name in names:
            _FUNCTIONS[name] = function
        return function

    return declare


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
            if refused.code == 2:
                self.malformed.append(f"{' '.join(words)}: {refused}")
            return refused.code, "", f"ERROR: ({program}) {refused}"
        if not {*LOOKS, *REPEATED} & {program, *words}:
            self.steps += 1
            if self.steps == self.cut_after:
                os.killpg(self.script, signal.SIGKILL)
        return 0, out, ""

    def _gcloud(self, words: list[str]) -> str:
        self.calls.append([word for word in words if word not in COMMON])
        if self._parser and (wrong := self._parser.refusal(folder=str(self.folder), words=words)):
            raise Refused(wrong, code=2)
        if text := self.refuse(" ".join(words)):
            raise Refused(text)
        parts = (word[2:].partition("=") for word in self.calls[-1] if word.startswith("--"))
        flags = {name: value for name, _, value in parts if name != "format"}
        names = [w for w in words if not w.startswith("--") and w not in ("alpha", "beta")]
        api = _APIS.get(names[0], "")
        if api and (api not in self.state.apis or self._is_new(api)):
            text = f"{api} has not been used in project {NUMBER} before or it is disabled"
            raise Refused(f"PERMISSION_DENIED: {text}. SERVICE_DISABLED")
        for length in range(len(names), 0, -1):
            name = " ".join(names[:length])
            if function := _FUNCTIONS.get(name):
                return function(self, names[length:], flags) or ""
            if name in _KINDS:
                return self._resource(name, names[length], names[length + 1 :], flags)
        raise Refused("unknown command", code=2)

    def _resource(self, kind: str, verb: str, names: list[str], flags: Flags) -> str:
        collection, kept = _KINDS[kind]
        resources = getattr(self.state, collection)
        name = names[-1] if names else flags.get("database") or flags.get("service", "")
        if kind == "iam service-accounts" and verb == "create":
            assert re.fullmatch(r"[a-z][-a-z0-9]{4,28}[a-z0-9]", name), name
            name = f"{name}@{PROJECT}.iam.gserviceaccount.com"
        if kind == "compute routers":
            name = f"{flags['region']}/{name}"
        if verb == "create":
            self._make(name, resources)
        elif "binding" not in verb or collection in ("accounts", "services"):
            self._has(name, resources)
        match verb:
            case "create" | "update":
                resources[name] = kept(flags)
            case "delete":
                del resources[name]
            case "describe":
                pass
            case "add-iam-policy-binding" | "remove-iam-policy-binding":
                self._bind(f"{kind} {name}", verb.startswith("add"), flags)
            case _:
                raise Refused("unknown command", code=2)
        return ""

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

    # Commands that do more -------------------------------------------------------------------------------------------

    @_command("projects describe")
    def _project(self, _: list[str], __: Flags) -> str:
        return NUMBER

    @_command("auth print-access-token")
    def _token(self, _: list[str], __: Flags) -> str:
        return "a-token"

    @_command("services enable")
    def _enable(self, names: list[str], _: Flags) -> None:
        for name in {name.partition(".")[0] for name in names} - self.state.apis:
            self._new[name] = self.lag
            self.state.apis.add(name)

    @_command("services identity create")
    def _identity(self, _: list[str], flags: Flags) -> None:
        service = flags["service"]
        agent = f"gcp-sa-{_AGENTS.get(service, service.partition('.')[0])}"
        self.state.accounts[f"service-{NUMBER}@{agent}.iam.gserviceaccount.com"] = ""

    @_command("iam service-accounts list")
    def _accounts(self, _: list[str], flags: Flags) -> str:
        pattern = flags["filter"].removeprefix("email~")
        return "\n".join(sorted(a for a in self.state.accounts if re.search(pattern, a)))

    @_command("iam service-accounts delete")
    def _no_account(self, names: list[str], flags: Flags) -> None:
        self._resource("iam service-accounts", "delete", names, flags)
        (email,) = names
        # on other resources they stay, and give nothing
        member, deleted = f"serviceAccount:{email}", f"deleted:serviceAccount:{email}"
        self.state.bindings = {
            (on, who.replace(member, deleted), role, condition)
            for on, who, role, condition in self.state.bindings
            if email not in on
        }

    @_command("iam roles describe", "iam roles delete", "iam roles undelete", "iam roles update")
    def _role(self, names: list[str], _: Flags) -> str:
        (name,), verb, roles = names, self.calls[-1][2], self.state.roles
        usable = [role for role, deleted in roles.items() if not deleted]
        self._has(name, roles if verb in ("describe", "undelete") else usable)
        if verb != "describe":
            roles[name] = verb == "delete"
        return f"projects/{PROJECT}/roles/{name}\t{'True' if roles[name] else ''}"

    @_command("firestore indexes composite create")
    def _index(self, _: list[str], flags: Flags) -> None:
        self._has(flags["database"], self.state.databases)
        index = " ".join(word for word in self.calls[-1] if "field-config" in word or "group" in word)  # fmt: skip
        self._make(index, self.state.indexes)
        self.state.indexes[index] = ""

    @_command("secrets list")
    def _secrets(self, _: list[str], __: Flags) -> str:
        return "\n".join(name for name in self.state.secrets if name.startswith("tpujob-s-"))

    @_command("secrets create")
    def _new_secret(self, names: list[str], flags: Flags) -> None:
        self._resource("secrets", "create", names, flags)
        locations = flags.get("locations", "")
        assert bool(locations) == (flags["replication-policy"] == "user-managed")
        self.state.replication[names[0]] = locations

    @_command("secrets versions add")
    def _version(self, names: list[str], flags: Flags) -> None:
        self._has(names[0], self.state.secrets)
        self.state.secrets[names[0]].append((self.folder / flags["data-file"]).read_text())

    @_command("secrets versions access")
    def _newest(self, _: list[str], flags: Flags) -> str:
        self._has(flags["secret"], self.state.secrets)
        if not (versions := self.state.secrets[flags["secret"]]):
            raise Refused("NOT_FOUND: Secret Version [versions/latest] not found")
        return versions[-1] or ""

    @_command("secrets versions list")
    def _versions(self, names: list[str], flags: Flags) -> str:
        assert (flags["filter"], flags["sort-by"]) == ("state!=DESTROYED", "~createTime")
        versions = enumerate(self.state.secrets[names[0]], 1)
        return "\n".join(reversed([str(n) for n, text in versions if text is not None]))

    @_command("secrets versions destroy")
    def _no_version(self, names: list[str], flags: Flags) -> None:
        self.state.secrets[flags["secret"]][int(names[0]) - 1] = None

    @_command("artifacts repositories set-cleanup-policies")
    def _cleanup(self, names: list[str], flags: Flags) -> None:
        self._has(names[0], self.state.repositories)
        self.state.repositories[names[0]] = json.loads(Path(flags["policy"]).read_text())

    @_command("builds submit")
    def _build(self, _: list[str], __: Flags) -> None:
        # where it is missing, gcloud makes it, with no location
        self.state.buckets.setdefault(f"gs://{PROJECT}_cloudbuild", "US")
        self._has("tpujob", self.state.repositories)
        if self._is_new("build"):
            text = "could not resolve source: googleapi: Error 403: no access"
            raise Refused(f"INVALID_ARGUMENT: {text}")

    @_command("run services describe")
    def _service(self, names: list[str], _: Flags) -> str:
        (name,) = names
        self._has(name, self.state.services)
        url = f"https://{name}-yuquaflafa-ez.a.run.app"
        urls = json.dumps([f"https://{name}-{NUMBER}.{REGION}.run.app", url])
        return f"{url}\trun.googleapis.com/ingress=all;run.googleapis.com/urls={urls}"

    @_command("run services replace")
    def _replace(self, names: list[str], _: Flags) -> None:
        if not any(self.state.secrets["tpujob-context"]) or self._is_new("secret"):
            raise Refused("Permission denied on secret: tpujob-context/versions/latest")
        service = yaml.safe_load(Path(names[0]).read_text())
        name = service["metadata"]["name"]
        self.state.services.setdefault(name, []).append(service)
        self.state.traffic[name] = "latest" if service["spec"]["traffic"][0]["latestRevision"] else ""  # fmt: skip

    @_command("run services update-traffic")
    def _traffic(self, names: list[str], flags: Flags) -> None:
        self._has(names[0], self.state.services)
        latest = "latest" if "to-latest" in flags else ""
        self.state.traffic[names[0]] = flags.get("to-revisions") or latest

    @_command("run revisions list")
    def _revisions(self, _: list[str], flags: Flags) -> str:
        service, revisions = flags["service"], self.state.services[flags["service"]]
        return "\n".join(f"{service}-{n:05}-abc" for n in range(len(revisions), 0, -1))

    @_command("compute networks subnets update")
    def _subnet(self, names: list[str], flags: Flags) -> None:
        self.state.private.add(f"{flags['region']}/{names[0]}")

    @_command("compute routers list")
    def _routers(self, _: list[str], flags: Flags) -> str:
        routers, region = self.state.routers, flags.get("regions", "")
        if not region:
            name = flags["filter"].removeprefix("name=")
            return "\n".join(key.partition("/")[0] for key in routers if key.endswith(f"/{name}"))
        assert flags["filter"] == "network~/default$ AND nats:*"
        return "\n".join(key for key, nat in routers.items() if nat and key.startswith(f"{region}/"))  # fmt: skip

    @_command("compute routers nats create")
    def _new_nat(self, names: list[str], flags: Flags) -> None:
        router = f"{flags['region']}/{flags['router']}"
        self._has(router, self.state.routers)
        self.state.routers[router] = names[0]

    @_command("monitoring uptime", "monitoring channels", "monitoring policies")
    def _watch(self, names: list[str], flags: Flags) -> str:
        words = [word for word in self.calls[-1] if word not in ("alpha", "beta")]
        verb, watches = names[0], self.state.watches
        of_kind = f"projects/{PROJECT}/{_MONITORED[words[1]]}/"
        if verb.startswith("list"):
            return "\n".join(name for name in watches if name.startswith(of_kind))
        if verb == "create":
            watches[f"{of_kind}id-of-{self.steps + 1}"] = flags
            if file := flags.get("policy-from-file"):
                flags["policy"] = Path(file).read_text()
            return ""
        name = names[1]
        self._has(name, watches)
        if verb == "update":
            watches[name] |= flags
            return ""
        by = [flags for flags in watches.values() if name.rpartition("/")[2] in str(flags)]
        if by:
            raise Refused(f"INVALID_ARGUMENT: {name} is named by {by}")
        del watches[name]
        return ""

    @_command("projects add-iam-policy-binding", "projects remove-iam-policy-binding")
    def _of_project(self, names: list[str], flags: Flags) -> None:
        self._bind(f"projects {names[0]}", "add-iam-policy-binding" in self.calls[-1], flags)

    @_command("iap web add-iam-policy-binding", "iap web remove-iam-policy-binding")
    def _of_iap(self, _: list[str], flags: Flags) -> None:
        add = "add-iam-policy-binding" in self.calls[-1]
        self._bind(f"beta iap web {flags['service']}", add, flags)

    def _bind(self, resource: str, add: bool, flags: Flags) -> None:
        member, role, condition = flags["member"], flags["role"], flags.get("condition")
        if file := flags.get("condition-from-file"):
            condition = str(yaml.safe_load(Path(file).read_text()))
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
