"""Routes for an admin: machines, members, what is left over, what does not hold."""

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from tpujob.api import BrokenView, MemberView, SuspectView, SweptView
from tpujob.web import schemas
from tpujob.web.routes.caller import Caller


def add(app: FastAPI) -> None:
    @app.get("/v1/hosts", tags=["upkeep"], response_model=list[SuspectView])
    def hosts(api: Caller) -> JSONResponse:
        """Machines that are suspected of wrong numbers, or pinned, the worst first."""
        return JSONResponse(api.hosts())

    @app.post("/v1/hosts/pin", tags=["upkeep"], response_model=SuspectView)
    def pin_host(api: Caller, pin: schemas.Pin) -> JSONResponse:
        """Call a machine good or bad whatever its score."""
        return JSONResponse(api.pin_host(pin.physical, pin.verdict))

    @app.post("/v1/hosts/clear", tags=["upkeep"], response_model=schemas.Done)
    def clear_host(api: Caller, machine: schemas.Machine) -> JSONResponse:
        """Forget a machine's score, pin and reasons."""
        api.clear_host(machine.physical)
        return JSONResponse({"done": True})

    @app.get("/v1/members", tags=["upkeep"], response_model=list[MemberView])
    def members(api: Caller) -> JSONResponse:
        """Who may use this backend."""
        return JSONResponse(api.members())

    @app.put("/v1/members", tags=["upkeep"], response_model=MemberView)
    def give_role(api: Caller, given: schemas.Given) -> JSONResponse:
        """Give somebody a role, from their next request on."""
        return JSONResponse(api.give_role(given.name, given.role))

    @app.delete("/v1/members", tags=["upkeep"], response_model=schemas.Done)
    def remove_member(api: Caller, name: str) -> JSONResponse:
        """Refuse somebody from now on; their jobs go on."""
        api.remove_member(name)
        return JSONResponse({"done": True})

    @app.get("/v1/leaks", tags=["upkeep"], response_model=SweptView)
    def leaks(api: Caller) -> JSONResponse:
        """What a sweep would do now: the slices with our label that no job claims."""
        return JSONResponse(api.leaks())

    @app.post("/v1/sweep", tags=["upkeep"], response_model=SweptView)
    def sweep(api: Caller, dry_run: bool = False) -> JSONResponse:
        """Delete the slices that no job claims, and the keys of slices that are gone."""
        return JSONResponse(api.sweep(dry_run=dry_run))

    @app.get("/v1/fsck", tags=["upkeep"], response_model=list[BrokenView])
    def fsck(api: Caller) -> JSONResponse:
        """Every rule that does not hold of a record or its history."""
        return JSONResponse(api.fsck())

    _ = (hosts, pin_host, clear_host, members, give_role, remove_member, leaks, sweep, fsck)
