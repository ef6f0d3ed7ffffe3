"""`/jobs/{id}/spec`, `/jobs/{id}/code` and `/diff?a=&b=`: what was submitted, and how it differs from another job."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tpujob.errors import BadRequest
from tpujob.web.pages.frame import PageContent, PageRequest


class DiffLine(NamedTuple):
    kind: str  #: `add`, `del`, `head`, `at` or empty
    text: str


def load_spec(asked: PageRequest) -> PageContent:
    job = asked.api.get(asked.job)
    return PageContent(
        {"id": job["id"], "name": job["name"], "spec": job["spec"]},
        f"Spec · {job['name']}",
        f"tpujob show {job['id']} --json",
        shown={"job": job, "text": as_yaml(job["spec"])},
    )


def load_code(asked: PageRequest) -> PageContent:
    job = asked.api.get(asked.job)
    code = asked.api.patch(job["id"])
    return PageContent(
        {**code},
        f"Code · {job['name']}",
        f"tpujob show {job['id']}",
        shown={"job": job, "lines": list(diff_lines(code["text"]))},
    )


def load_diff(asked: PageRequest) -> PageContent:
    a, b = asked.query.one("a"), asked.query.one("b")
    if not a or not b:
        raise BadRequest("a comparison needs two jobs", hint="Name them: /diff?a=000041&b=000042")
    found = asked.api.diff(a, b)
    first, second = found["a"]["id"], found["b"]["id"]
    changed = [(file, list(diff_lines(file["diff"]))) for file in found["files"]]
    return PageContent(
        {**found},
        f"{first} and {second}",
        f"tpujob diff {first} {second}",
        shown={"changed": changed},
    )


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
