"""The control API of the farm: JSON over HTTP on a Unix socket, for the emulated cloud and for injected faults."""

from typing import Any
from urllib.parse import unquote

from tpujob.emulator.farm.farm import Farm
from tpujob.emulator.farm.hosts import HostSpec, SliceRequest
from tpujob.emulator.farm.image import DEFAULT
from tpujob.emulator.http_messages import Request, Response, json_response
from tpujob.errors import BadRequest, NotFound, TpujobError

NOTICE = 30.0  #: seconds between SIGTERM and off; the cloud promises at most this
WINDOW = 60.0


class FarmControl:
    """Routes a request to the farm."""

    def __init__(self, farm: Farm) -> None:
        self._farm = farm

    async def answer(self, request: Request) -> Response:
        try:
            body = await request.json_object()
            return json_response(await self._route(request.method, request.path, body))
        except TpujobError as error:
            return json_response({"error": error.message, "hint": error.hint}, error.http_status)
        except ValueError as error:
            return json_response({"error": str(error)}, 400)

    async def _route(self, method: str, path: str, body: dict[str, Any]) -> Any:
        match method, unquote(path).strip("/").split("/"):
            case "GET", ["slices"]:
                return {"slices": self._farm.status()}
            case "GET", ["names"]:
                return self._farm.hung()
            case "GET", ["slices", name, "guests"]:
                return {"guests": self._farm.guests(name)}
            case "PUT", ["slices", name]:
                hosts = await self._farm.create(_slice_request(name, body))
                return {"hosts": [{"index": h.spec.index, "address": h.address} for h in hosts]}
            case "DELETE", ["slices", name]:
                await self._farm.delete(name)
            case "POST", ["slices", name, what]:
                await self._disturb(name, what, body)
            case _:
                raise NotFound(f"nothing at {method} {path}")
        return {}

    async def _disturb(self, name: str, what: str, body: dict[str, Any]) -> None:
        host = int(_number(body, "host", 0))
        host_or_all = None if body.get("host") is None else host
        match what:
            case "preempt":
                self._farm.preempt(name, _number(body, "notice_s", NOTICE))
            case "maintain":
                self._farm.maintain(name, _number(body, "window_s", WINDOW))
            case "announce":
                self._farm.announce(name, _texts(body.get("upcoming", {})))
            case "slow":
                self._farm.slow(name, host, _number(body, "factor", 1))
            case "off":
                await self._farm.switch_off(name, host_or_all)
            case "on":
                await self._farm.switch_on(name)
            case "hang":
                self._farm.hang(name, host_or_all, off=body.get("off") is True)
            case "cut":
                self._farm.cut(name, host_or_all, off=body.get("off") is True)
            case "oom":
                self._farm.out_of_memory(name, host)
            case "env":
                for variable, value in _texts(body.get("set", {})).items():
                    self._farm.set_env(name, host, variable, value)
            case _:
                raise NotFound(f"there is no disturbance {what!r}")


def _number(body: dict[str, Any], key: str, default: float) -> float:
    value = body.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
        raise BadRequest(f"{key} must be a number from 0 to 1,000,000")
    return float(value)


def _slice_request(name: str, body: dict[str, Any]) -> SliceRequest:
    try:
        hosts = tuple(
            HostSpec(
                index=int(h["index"]),
                physical=str(h.get("physical", "")),
                chips=int(h.get("chips", 1)),
                env=_texts(h.get("env", {})),
            )
            for h in body["hosts"]
        )
        return SliceRequest(
            name=name,
            zone=str(body["zone"]),
            type=str(body["type"]),
            hosts=hosts,
            metadata=_texts(body.get("metadata", {})),
            env=_texts(body.get("env", {})),
            project=str(body.get("project", "tpujob-emulator")),
            image=str(body.get("image", DEFAULT)),
            cut=body.get("cut") is True,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequest(f"not a description of a slice: {error!r}") from error


def _texts(value: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items()}
