"""The port `ProbedCloud` on Google Cloud: calls as the backend's adapters make them, answered in JSON; a refusal is an
answer, too."""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import importlib.resources
import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tpujob.adapters.calling import Deadline, status_of
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.adapters.cloud_tpu.calls import Method, ServiceOff, Version, ZoneClosed
from tpujob.adapters.gcs import GcsBlobs
from tpujob.adapters.google.quota import kind_of_metric
from tpujob.adapters.google.rest import GoogleRest, HttpError
from tpujob.adapters.ssh import SshHosts
from tpujob.doctor.probe.cloud import SERVICE_OFF, TRANSIENT, ZONE_CLOSED, Answer, Contact
from tpujob.doctor.probe.spend import PROBE_JOB
from tpujob.domain.actions import HostPlan
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.model import Slice
from tpujob.domain.observations import SliceSeen
from tpujob.errors import NotFound, Refused, TpujobError, Transient
from tpujob.ports import Owned

#: seconds for removing one object
ONE_OBJECT = 10.0


@dataclass(frozen=True, slots=True)
class GoogleCloud:
    """The port. `rest` is None where nothing stands for Google's other APIs; `makes_buckets`: at their first use."""

    slices: CloudTpuSlices
    hosts: SshHosts
    blobs: GcsBlobs
    google: GoogleRest | None
    makes_buckets: bool

    def parent(self, zone: str) -> str:
        return self.slices.api.parent(zone)

    # Cloud TPU

    def call(
        self, method: str, request: Mapping[str, Any], *, timeout: float, version: str = "v2"
    ) -> Answer:
        known, of = cast(Method, method), cast(Version, version)
        what = str(request.get("name") or request.get("parent") or "").rpartition("/")[2]
        doing = f"{method} {what}"

        def ask() -> Mapping[str, Any]:
            asked, within = dict(request), Deadline(timeout)
            return _json(self.slices.api.call(known, asked, within, doing=doing, version=of))

        return _answered(doing, ask)

    def create(self, slice: Slice, *, timeout: float) -> Answer:
        key = self.hosts.public_key(slice)
        return _answered(
            f"create {slice.name}",
            lambda: self.slices.create(slice, job_id=PROBE_JOB, public_key=key, timeout=timeout),
        )

    def delete(self, slice: Slice, *, timeout: float) -> Answer:
        return _answered(f"delete {slice.name}", lambda: self.slices.delete(slice, timeout=timeout))

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        return self.slices.look(slice, timeout=timeout)

    def owned(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        return self.slices.list_all(zones, timeout=timeout)

    # The project

    def rest(
        self, host: str, path: str, body: Mapping[str, Any] | None, *, timeout: float, **params: str
    ) -> Answer:
        del timeout  # has one of its own, shorter than any that is given
        google = self.google
        if google is None:
            return Answer(
                f"{host}/{path}", "UNAVAILABLE", "there is nothing here that stands for it"
            )
        verb = "GET" if body is None else "POST"
        return _answered(
            f"{verb} {host}/{path}", lambda: google.call(verb, host, path, params=params, body=body)
        )

    def quota_kinds(self, names: Sequence[str]) -> Mapping[str, str]:
        kinds = {name: kind_of_metric(name) for name in names}
        return {name: kind.generation if kind else "" for name, kind in kinds.items()}

    # The host

    def meet(self, slice: Slice, *, timeout: float) -> Contact:
        self.hosts.run(slice, "true", timeout=timeout)
        known = list(self.hosts.pinned(slice).values())
        published = {key for one in self._guests(slice, timeout) for key in one}
        kind = next((key.type for key in known), "")
        told = bool(known) and all((key.type, key.key) in published for key in known)
        return Contact(published=told, key_type=kind)

    def _guests(self, slice: Slice, timeout: float) -> Sequence[frozenset[tuple[str, str]]]:
        found = self.slices.guest_attributes.look(slice, timeout)
        return [guest.host_keys for guest in found]

    def on_host(self, slice: Slice, part: str, about: Mapping[str, Any], *, timeout: float) -> Any:
        script = (importlib.resources.files("tpujob.doctor.probe") / "on_host.py").read_bytes()
        command = shlex.join(["python3", "-", part, json.dumps(dict(about))])
        output = self.hosts.run(slice, command, stdin=script, timeout=timeout)
        lines = output.text.strip().splitlines() or [""]
        try:
            return json.loads(lines[-1])
        except (ValueError, RecursionError):
            raise Transient(
                f"{part} printed {lines[-1][:200]!r} (exit code {output.code})"
            ) from None

    def start(self, slice: Slice, plan: HostPlan, *, timeout: float) -> None:
        self.hosts.start(slice, [plan], timeout=timeout)

    def forget(self, slice: Slice) -> None:
        self.hosts.forget(slice)

    # The bucket

    def make_bucket(self, workdir: str, zone: str, *, timeout: float) -> None:
        if self.makes_buckets:
            self.blobs.ensure_bucket(workdir, region_of(zone), timeout=timeout)

    def clear(self, workdir: str, *, timeout: float) -> int:
        try:
            found = self.blobs.list(f"{workdir}/", timeout=timeout)
        except NotFound:  # the bucket was never made
            return 0
        for blob in found:
            self.blobs.delete(blob.path, timeout=ONE_OBJECT)
        return len(found)

    def close(self) -> None:
        self.slices.close()
        self.hosts.close()
        self.blobs.close()
        if self.google is not None:
            self.google.close()


def _answered(doing: str, ask: Callable[[], Mapping[str, Any] | None]) -> Answer:
    before = time.monotonic()
    try:
        body = ask() or {}
    except TpujobError as error:
        code, message = _words(error)
        took = time.monotonic() - before
        return Answer(doing, code, message, read_as=_reading(error), seconds=took)
    return Answer(doing, "OK", body=body, seconds=time.monotonic() - before)


def _words(error: TpujobError) -> tuple[str, str]:
    """Code and text of the service, where our error came from one."""
    from google.api_core.exceptions import GoogleAPICallError

    cause = error.__cause__
    if isinstance(cause, GoogleAPICallError):
        return status_of(cause), str(cause.message)
    if isinstance(cause, HttpError):
        return str(cause), error.message
    return "REFUSED" if isinstance(error, Refused) else "UNAVAILABLE", error.message


def _reading(error: TpujobError) -> str:
    if isinstance(error, ZoneClosed):
        return ZONE_CLOSED
    if isinstance(error, ServiceOff):
        return SERVICE_OFF
    return str(error.cause) if isinstance(error, Refused) else TRANSIENT


def _json(message: Any) -> Mapping[str, Any]:
    """A message of the library, also of one that wraps it, as the JSON that REST would have."""
    from google.protobuf.json_format import MessageToDict

    wrapped = getattr(message, "operation", None)  # of a long-running operation, as it was answered
    raw = wrapped if wrapped is not None else message
    raw = getattr(raw, "_pb", raw)
    return MessageToDict(raw)
