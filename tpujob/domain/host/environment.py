"""The environment and mounts of a job, as orders for the agent and as words for people, with warnings. Pure.

`domain/spec/env.py` has their fields; `agent/setup/` carries the orders out.
"""

import re

from tpujob.domain.spec import JobSpec, Mount, time_text
from tpujob.protocol import EnvironmentOrder, MountOrder
from tpujob.protocol.limits import secret_variables

#: the default environment of bundled programs: a requirements file of their bundle, and its version of Python
LOCK, LOCKED_PYTHON = "workloads/requirements.lock", "3.11"

#: `python` as a command of a shell
_PYTHON = re.compile(r"(?:^|[;&|(]\s*|\bexec\s+)python(?=\s|$)", re.MULTILINE)


def environment_order(spec: JobSpec) -> EnvironmentOrder | None:
    """Return the environment of a host's plan. None: programs run on the host as it is."""
    env = spec.env
    if env is None and spec.run.workload is not None:
        return {"kind": "uv", "file": LOCK, "python": LOCKED_PYTHON, "unless_installed": True}
    if env is None:
        return None
    if env.kind == "docker":
        return {"kind": env.kind, "image": env.source, "args": list(env.args)}
    return {"kind": env.kind, "file": env.source, "python": env.python}


def mount_order(mount: Mount) -> MountOrder:
    """Return the mount of a host's plan. Sizes in MiB, times in seconds."""
    return {
        "bucket": mount.bucket,
        "to": mount.to,
        "read_only": mount.read_only,
        "only_dir": mount.only_dir,
        "cache": mount.cache and {"mib": mount.cache.size, "ttl": mount.cache.ttl},
    }


def environment_words(spec: JobSpec) -> str:
    """Return the environment in words; empty: the host as it is."""
    env = spec.env
    if env is None:
        bundled = f"that of the bundled program, with Python {LOCKED_PYTHON}"
        return bundled if spec.run.workload else ""
    words = f"{env.kind} {env.source}"
    return f"{words}, Python {env.python}" if env.python else words


def mount_words(spec: JobSpec) -> list[str]:
    """Return each mount in words."""
    return [_mount_words(mount) for mount in spec.mounts]


def _mount_words(mount: Mount) -> str:
    folder = f"/{mount.only_dir}" if mount.only_dir else ""
    access = "read only" if mount.read_only else "may be written to"
    text = f"{mount.bucket}{folder} at {mount.to}, {access}"
    if mount.cache is None:
        return text
    gib = f"{mount.cache.size / 1024:g} GiB"
    return f"{text}, {gib} kept on disk for {time_text(mount.cache.ttl)}"


def warnings(spec: JobSpec) -> list[str]:
    """Return a warning for each setting that is allowed and may surprise later."""
    warnings: list[str] = []
    if spec.env is None and _PYTHON.search(spec.run.command or ""):
        warnings.append("a TPU VM has `python3` and no `python`: write python3, or name an `env`")
    if spec.env and spec.env.docker and "@sha256:" not in spec.env.docker:
        warnings.append(
            f"{spec.env.docker} is a tag, not a digest: a later attempt may get another image; "
            "write NAME@sha256:... to keep it"
        )
    if spec.env and spec.env.docker and spec.run.workload:
        warnings.append("the image needs python3 and the packages of the bundled program")
    warnings += [
        f"run.env.{name} is kept in the job's record; a secret belongs in run.secrets: `tpujob secret set {name}`"
        for name in secret_variables(spec.run.env)
    ]
    warnings += [
        f"{mount.bucket} may be written to by every host at {mount.to}"
        for mount in spec.mounts
        if not mount.read_only
    ]
    return warnings
