"""Paths in a job's workdir in the bucket, and below the home folder of a host."""

from __future__ import annotations

import re

#: the suffix of log segments alone: the bucket's lifecycle rule deletes old objects with this suffix
LOG_SUFFIX = ".tpujob-log"

#: tpujob's folder below the home folder of a host
HOST_FOLDER = ".tpujob"
#: a cache that outlives attempts and may be deleted at any time; the agent expands `~`
HOST_CACHE = f"~/{HOST_FOLDER}/cache"

#: the folders of a workdir that outlive the job's record, unless the user has them deleted, too
LASTING_FOLDERS = ("checkpoints/", "outputs/")
#: a folder whose files are in the host's memory
MEMORY = "/dev/shm"  # noqa: S108, a host works for one job

_SEGMENT = re.compile(r"/attempts/(\d+)/host-(\d{1,6})/log-(\d{5,9})" + re.escape(LOG_SUFFIX))

_REPORT = re.compile(r"([A-Za-z0-9_-]{1,64})/([1-9][0-9]{0,8})/host-(0|[1-9][0-9]{0,5})")


def owner_folder(bucket: str, folder: str) -> str:
    """Return the folder of all objects of one user; with an empty `folder`, the bucket, as jobs without owner use."""
    return f"{bucket}/{folder}" if folder else bucket


def attempt_folder(workdir: str, attempt: int) -> str:
    """Return the folder of an attempt's logs, events, verdicts and last reports."""
    return f"{workdir}/attempts/{attempt}"


def reports_root(workdir: str) -> str:
    """Return the folder of the reports of all running attempts of an owner, so that one list call reads them all."""
    return workdir.rpartition("/jobs/")[0] + "/reports/"


def job_folder(workdir: str) -> str:
    """Return the last part of the workdir, which also names the folder of the job's reports."""
    return workdir.rpartition("/")[2]


def job_id(folder: str) -> str:
    """Return the id of the job with this `job_folder`."""
    return folder.partition("-")[0]


def reports_prefix(workdir: str, attempt: int) -> str:
    """Return the prefix of an attempt's report paths; the host's number follows."""
    return f"{reports_root(workdir)}{job_folder(workdir)}/{attempt}/host-"


def report_path(workdir: str, attempt: int, host: int) -> str:
    """Return the path of a host's report while the attempt runs."""
    return f"{reports_prefix(workdir, attempt)}{host}"


def read_report_path(root: str, path: str) -> tuple[str, int, int] | None:
    """Return job folder, attempt and host of a report below `root`, or None if `path` is not a report's."""
    match = _REPORT.fullmatch(path[len(root) :]) if path.startswith(root) else None
    return (match[1], int(match[2]), int(match[3])) if match else None


def kept_report_path(workdir: str, attempt: int, host: int) -> str:
    """Return the path that a host's last report is moved to after the attempt."""
    return f"{attempt_folder(workdir, attempt)}/reports/host-{host}"


def hosts_prefix(workdir: str, attempt: int) -> str:
    """Return the prefix of an attempt's host folders; the host's number follows."""
    return attempt_folder(workdir, attempt) + "/host-"


def host_folder(workdir: str, attempt: int, host: int) -> str:
    """Return the folder of a host's log and of its program's events and verdict."""
    return f"{hosts_prefix(workdir, attempt)}{host}"


def outputs_folder(workdir: str, host: int) -> str:
    """Return the folder of a host's saved output folders, shared by all attempts."""
    return f"{workdir}/outputs/host-{host}"


def outputs_list(workdir: str, host: int) -> str:
    """Return the path of the signed list of the files in `outputs_folder`."""
    return f"{outputs_folder(workdir, host)}.list"


def staged_folder(name: str, *, memory: bool = False) -> str:
    """Return a host's folder for a data set of its job; the agent expands `~`."""
    return f"{MEMORY}/tpujob/{name}" if memory else f"~/{HOST_FOLDER}/data/{name}"


def log_prefix(workdir: str, attempt: int, host: int) -> str:
    """Return the prefix of a host's log segments."""
    return host_folder(workdir, attempt, host) + "/log-"


def log_path(workdir: str, attempt: int, host: int, segment: int) -> str:
    """Return the path of a segment, numbered from 1. Paths sort as numbers do."""
    return f"{log_prefix(workdir, attempt, host)}{segment:05d}{LOG_SUFFIX}"


def read_log_path(workdir: str, path: str) -> tuple[int, int, int] | None:
    """Return attempt, host and number of a log segment, or None if `path` is not a segment's in that workdir."""
    match = _SEGMENT.fullmatch(path[len(workdir) :]) if path.startswith(workdir) else None
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
