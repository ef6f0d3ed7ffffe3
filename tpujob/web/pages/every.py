"""Every page: whoever adds one adds a line."""

from fastapi import FastAPI

from tpujob.web.pages import (
    assets,
    backend,
    capacity,
    events,
    hosts,
    jobs,
    logs,
    many,
    notifications,
    spend,
)
from tpujob.web.pages.one_job import curves, files, page, steer

JOBS = (jobs, many, page, curves, files, steer, logs)
LAB = (capacity, hosts, spend, events, notifications, backend)


def add(app: FastAPI) -> None:
    for each in (assets, *JOBS, *LAB):
        each.add(app)
