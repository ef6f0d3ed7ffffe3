"""Routes about notifications."""

from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse

from tpujob.api import ChannelView, DeliveryView
from tpujob.web import schemas
from tpujob.web.routes.caller import Caller

Name = Annotated[str, Query(max_length=64)]
Most = Annotated[int, Query(ge=1, le=1000)]


def add(app: FastAPI) -> None:
    @app.get("/v1/channels", tags=["notifications"], response_model=list[ChannelView])
    def channels(api: Caller) -> JSONResponse:
        """The channels of the context, with their rules and without their secrets."""
        return JSONResponse(api.channels())

    @app.get("/v1/deliveries", tags=["notifications"], response_model=list[DeliveryView])
    def deliveries(api: Caller, channel: Name = "", limit: Most = 50) -> JSONResponse:
        """The newest messages, of one channel or all."""
        return JSONResponse(api.deliveries(channel=channel, limit=limit))

    @app.post("/v1/channels/{name}/test", tags=["notifications"], response_model=DeliveryView)
    def test_channel(api: Caller, name: str) -> JSONResponse:
        """Send a message that says it is a test, now."""
        return JSONResponse(api.test_channel(name))

    @app.put("/v1/channel-secrets/{name}", tags=["notifications"], response_model=schemas.Done)
    def set_channel_secret(api: Caller, name: str, new: schemas.NewSecret) -> JSONResponse:
        """Keep a value that channels name: a webhook of Slack, a signing key, a password."""
        api.set_channel_secret(name, new.value)
        return JSONResponse({"done": True})

    _ = (channels, deliveries, test_channel, set_channel_secret)
