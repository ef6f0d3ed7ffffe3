"""`/jobs/{id}/spec`, `/jobs/{id}/code` and `/diff?a=&b=`: what was submitted, and how it differs from another job."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.errors import BadRequest
from tpujob.web.pages import frame
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import Caller


class DiffLine(NamedTuple):
    kind: str  #: `add`, `del`, `head`, `at` or empty
    text: str


def add(app: FastAPI) -> None:
    @frame.page(app, "/jobs/{job}/spec")
    def spec(api: Caller, request: Request, job: str) -> Response:
        found = api.get(job)
        Query.read(request.url.query, ())
        return frame.answer(
            request,
            "job_spec.html",
            {"id": found["id"], "name": found["name"], "spec": found["spec"]},
            title=f"Spec · {found['name']}",
            command=f"tpujob show {found['id']} --json",
            job=found,
            text=as_yaml(found["spec"]),
        )

    @frame.page(app, "/jobs/{job}/code")
    def code(api: Caller, request: Request, job: str) -> Response:
        found = api.get(job)
        Query.read(request.url.query, ())
        shipped = api.patch(found["id"])
        return frame.answer(
            request,
            "job_code.html",
            cast("Mapping[str, Any]", shipped),
            title=f"Code · {found['name']}",
            command=f"tpujob show {found['id']}",
            job=found,
            lines=list(diff_lines(shipped["text"])),
        )

    @frame.page(app, "/diff")
    def diff(api: Caller, request: Request) -> Response:
        _ = api.diff  # refused to whoever may not compare, whatever they ask for
        asked = Query.read(request.url.query, ("a", "b"))
        a, b = asked.one("a"), asked.one("b")
        if not a or not b:
            raise BadRequest(
                "a comparison needs two jobs", hint="Name them: /diff?a=000041&b=000042"
            )
        found = api.diff(a, b)
        return frame.answer(
            request,
            "diff.html",
            cast("Mapping[str, Any]", found),
            title=f"{found['a']['id']} and {found['b']['id']}",
            command=f"tpujob diff {found['a']['id']} {found['b']['id']}",
            changed=[(one, list(diff_lines(one["diff"]))) for one in found["files"]],
        )

    _ = (spec, code, diff)


def as_yaml(spec: Mapping[str, Any]) -> str:
    """As a job file is written."""
    import yaml

    return yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True, width=100)


def diff_lines(text: str) -> Iterator[DiffLine]:
    """A unified diff, line by line."""
    for line in text.splitlines():
        if line.startswith(("+++", "---", "diff ", "index ", "new file", "deleted file")):
            yield DiffLine("head", line)
        elif line.startswith("@@"):
            yield DiffLine("at", line)
        else:
            yield DiffLine({"+": "add", "-": "del"}.get(line[:1], ""), line)
