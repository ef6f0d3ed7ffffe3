"""Documents of schema version 1, as ones of this version. Pure.

That version kept some facts in sentences only, and what an event carries without a type. Here, and nowhere else, facts
are read from its sentences.
"""

import re
from typing import Any

_ENDED = re.compile(r"attempt \d+ (?:succeeded|ended, [A-Z_]+): ")
_OF_HOST = re.compile(r"(?:host (?P<host>\d+): )?(?P<text>.*)", re.DOTALL)
_REGION = re.compile(r"\bin region [a-z]")
_IN_QUEUE = "waiting for capacity"

_Old = dict[str, Any]


def job(old: _Old) -> _Old:
    """Of a document that can be read as a job."""
    waits = old["state"] == "provisioning" and old.get("message", "").startswith(_IN_QUEUE)
    slices = [
        {**s, "refused_scope": _scope(s.get("refused"), s.get("delete_reason", ""))}
        for s in old.get("slices", [])
    ]
    if waits and slices:
        slices[-1]["in_queue"] = True
    attempts = [
        {**a, "message": _own(a.get("message", "")), "evidence": _evidence(a)}
        for a in old.get("attempts", [])
    ]
    return {**old, "slices": slices, "attempts": attempts}


def payload(event: _Old) -> _Old:
    """What an event carries whose kind carries something. Raises LookupError, TypeError, ValueError or AttributeError
    when the event is damaged."""
    kind, data, text = event["kind"], event["data"], event["text"]
    match kind:
        case "slice_ready":
            return {"endpoints": _endpoints(data)}
        case "attempt_ended":
            return {"end": _end(data, text), **_some(data, "then", "budget")}
        case "attempt_retried" | "attempt_condemned":
            return {"end": _end(data, text), **_some(data, "delay", "budget")}
        case "held":
            end = None if "endpoints" in data else _end(data, text)
            return {"hold_until": data["hold_until"], "end": end, "endpoints": _endpoints(data)}
        case "release_started":
            return {**data, "scope": _scope(data.get("refused"), text)}
        case _:
            return data


def _end(data: _Old, text: str) -> _Old:
    known = _some(data, "outcome", "cause", "host", "progress", "physical", "verdict")
    shown = {"message": _own(text), "evidence": _evidence(data)}
    return {"cause": None, "host": None, **known, **shown}


def _evidence(data: _Old) -> list[_Old]:
    """Its lines began with their host."""
    found = [_OF_HOST.fullmatch(line) for line in data.get("evidence") or ()]
    return [
        {"host": line["host"] and int(line["host"]), "text": line["text"]} for line in found if line
    ]


def _some(data: _Old, *names: str) -> _Old:
    return {name: data[name] for name in names if data.get(name) is not None}


def _endpoints(data: _Old) -> list[_Old]:
    names = ("host", "internal_ip", "external_ip")
    return [dict(zip(names, each, strict=True)) for each in data.get("endpoints") or ()]


def _own(text: str) -> str:
    """What an attempt's message says beside its number and its cause."""
    return _ENDED.sub("", text, count=1)


def _scope(refused: str | None, text: str) -> str:
    return "region" if refused and _REGION.search(text) else ""
