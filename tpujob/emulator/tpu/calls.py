"""One call of the API, whoever carries it: the faults that are set for it, and the lock. `server.py` carries calls over
gRPC, `rest/` over HTTP."""

from tpujob.emulator.tpu.convert import Message
from tpujob.emulator.tpu.records import ApiError
from tpujob.emulator.tpu.refusals import CallFault
from tpujob.emulator.tpu.v2 import Handler
from tpujob.emulator.tpu.world import World

_NO_FAULT = CallFault("", "OK", 0)


def next_fault(world: World, name: str) -> CallFault:
    """The fault for this call, counted down. Its `delay_s` is for the caller to wait, before `carry_out`."""
    with world.lock:
        world.calls[name] += 1
        return world.faults.next_call(name) or _NO_FAULT


def carry_out(world: World, handler: Handler, request: Message, fault: CallFault) -> Message:
    """The answer. Raises ApiError: the world's refusal, or the fault's, before or after the call took effect."""
    if fault.when == "pre":
        _fail(fault)
    with world.lock:
        world.advance()
        response = handler(request)
    if fault.when == "post":
        _fail(fault)
    return response


def _fail(fault: CallFault) -> None:
    if fault.code != "OK":
        raise ApiError(fault.code, fault.message or f"injected fault: {fault.code}")
