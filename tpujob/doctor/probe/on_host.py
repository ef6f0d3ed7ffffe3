"""What a probe looks at on a TPU VM: sent over SSH to its `python3`, prints one line of JSON.

Standard library, Python 3.8 and later. Where it asks what the agent asks, it uses the agent's own code, which the probe
of the pre-flight check has brought there. No token is ever printed.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Dict, List, Optional

Facts = Dict[str, Any]

#: what tpujob reads, what it may read one day, and two keys that nobody has
KEYS = (
    "instance/preempted",
    "instance/maintenance-event",
    "instance/upcoming-maintenance",
    "instance/attributes/agent-worker-number",
    "instance/attributes/worker-network-endpoints",
    "instance/attributes/accelerator-type",
    "instance/attributes/tpu-env",
    "instance/attributes/physical-host",
    "instance/attributes/tpujob",
    "instance/service-accounts/default/email",
    "instance/service-accounts/default/scopes",
    "instance/no-such-key",
    "instance/attributes/no-such-key",
)
LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock")
NAMES = ("python", "python3", "pip3", "uv", "docker", "gcsfuse", "gcloud", "curl", "tar", "gcc")


def metadata(about: Facts) -> Facts:
    """Status, content and headers of each key."""
    del about
    base = "http://%s/computeMetadata/v1/" % _metadata_host()
    return {"keys": {key: _get(base + key) for key in KEYS}}


def notices(about: Facts) -> Facts:
    """What the agent's poll hears, every `pause` seconds, and how long each answer takes."""
    client = _agent("tpujob.agent.storage").MetadataClient()
    said: List[Optional[str]] = []
    took: List[float] = []
    for _ in range(int(about["polls"])):
        before = time.monotonic()
        said.append(client.notice())
        took.append(round(time.monotonic() - before, 3))
        time.sleep(about["pause"])
    return {"said": said, "seconds": took}


def image(about: Facts) -> Facts:
    """What is installed, and who installs packages just now."""
    del about
    modules = {name: _imports(name) for name in ("pip", "ensurepip", "venv", "jax", "libtpu")}
    with open("/proc/uptime", encoding="ascii") as file:
        uptime = float(file.read().split()[0])
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "modules": modules,
        "programs": {name: shutil.which(name) or "" for name in NAMES},
        "groups": _run(["id", "-Gn"]).split(),
        "sudo": _run(["sudo", "-n", "true"], "no") == "",
        "os": _read("/etc/os-release").splitlines()[:2],
        "uptime_s": round(uptime),
        "locks": _lock_holders(),
        "devices": sorted(glob.glob("/dev/accel*") + glob.glob("/dev/vfio/*")),
        "disk_free_gb": round(shutil.disk_usage(os.path.expanduser("~")).free / 1e9, 1),
    }


def attempt(about: Facts) -> Facts:
    """How far the agent's attempt is, and what its check before the program said."""
    from_home = os.path.join(os.path.expanduser("~"), about["folder"])
    state = _json_of(os.path.join(from_home, "attempts", "%s-1" % about["job"], "state.json"))
    kept = ("phase", "exit_code", "error", "cause", "notice", "versions", "program")
    checks = _json_of(os.path.join(from_home, "preflight.json"))
    return {
        "state": {key: state.get(key) for key in kept},
        "preflight": {key: checks.get(key) for key in ("passed", "checks", "at")},
    }


def storage(about: Facts) -> Facts:
    """Each way in which a host writes to the bucket, with the agent's own client: `ok`, or what was answered."""
    module = _agent("tpujob.agent.storage")
    client = module.Storage(module.MetadataClient())
    data, path = os.urandom(1024), about["workdir"] + "/probe/multipart"
    back: List[bytes] = []
    emulated = client._metadata is None
    done: Facts = {}

    def renewed() -> None:
        if emulated:
            raise RuntimeError("no token is used here")
        client._token, client._token_until = "refused", time.monotonic() + 3600
        try:
            list(client.objects(about["workdir"] + "/probe/"))
        except module.StorageError:
            list(client.objects(about["workdir"] + "/probe/"))

    steps = (
        ("multipart", lambda: client.put(path, data, {"tpujob": "probe"})),
        ("read", lambda: client.read(path, back.append)),
        ("same", lambda: _check(b"".join(back) == data)),
        (
            "listed",
            lambda: _check(
                "multipart" in [o.name for o in client.objects(about["workdir"] + "/probe/")]
            ),
        ),
        ("resumable", lambda: _resumable(client, about["workdir"] + "/probe/resumable", data)),
        ("renewed", renewed),
        ("deleted", lambda: client.delete(path)),
    )
    for name, step in steps:
        before = time.monotonic()
        try:
            step()
            said = "ok"
        except Exception as error:
            said = "%s: %s" % (type(error).__name__, str(error)[:300])
        done[name] = {"said": said, "seconds": round(time.monotonic() - before, 2)}
    skew = None if client.skew is None else round(client.skew)
    return {"emulated": emulated, "skew_s": skew, "steps": done}


# Helpers -------------------------------------------------------------------------------------------------------------


def _resumable(client: Any, path: str, data: bytes) -> None:
    """Begin an upload, ask how far it is, and send the rest."""
    bucket, _, name = path[len("gs://") :].partition("/")
    where = "/upload/storage/v1/b/%s/o?uploadType=resumable&name=%s" % (
        bucket,
        urllib.parse.quote(name, safe=""),
    )
    with client._open("POST", where, b"{}", "application/json") as began:
        session = began.headers["Location"]
    headers = {"Content-Range": "bytes 0-%d/%d" % (len(data) - 1, len(data))}
    request = urllib.request.Request(session, data, headers, method="PUT")  # noqa: S310, https
    with client._opener.open(request, timeout=15) as done:
        _check(done.status in (200, 201))
    client.delete(path)


def _agent(name: str) -> Any:
    """A module of the agent that lies on this host. Raises ImportError."""
    import importlib

    found = sorted(glob.glob(os.path.expanduser("~/.tpujob/agent-*")), key=os.path.getmtime)
    sys.path[:0] = found[-1:]
    return importlib.import_module(name)


def _metadata_host() -> str:
    return os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"


def _get(url: str) -> Facts:
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})  # noqa: S310, ours
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=3) as answer:
            said = answer.read(2000).decode("utf-8", "replace")
            return {"status": answer.status, "said": said.strip()}
    except urllib.error.HTTPError as error:
        with error:
            return {"status": error.code, "said": error.read(200).decode("utf-8", "replace")}
    except OSError as error:
        return {"status": 0, "said": str(error)[:200]}


def _imports(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def _lock_holders() -> Dict[str, str]:
    """By lock file, the program that holds it."""
    found: Dict[str, str] = {}
    inodes: Dict[str, str] = {}
    for path in os.environ.get("TPUJOB_PACKAGE_LOCKS", ":".join(LOCKS)).split(":"):
        if os.path.exists(path):
            inodes[str(os.stat(path).st_ino)] = path
    for line in _read("/proc/locks").splitlines():
        words = line.split()
        if len(words) > 5 and words[5].rpartition(":")[2] in inodes:
            held = _read("/proc/%s/comm" % words[4]).strip() or "pid %s" % words[4]
            found[inodes[words[5].rpartition(":")[2]]] = held
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _json_of(path: str) -> Facts:
    try:
        found: Any = json.loads(_read(path))
    except ValueError:
        return {}
    return dict(found)


def _run(argv: List[str], failed: str = "") -> str:
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return failed
    return done.stdout.decode("utf-8", "replace").strip()


def _check(holds: bool) -> None:
    if not holds:
        raise RuntimeError("it is not as it was written")


PARTS = {
    "metadata": metadata,
    "notices": notices,
    "image": image,
    "attempt": attempt,
    "storage": storage,
}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](json.loads(sys.argv[2]))))
