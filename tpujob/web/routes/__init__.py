"""The routes of the HTTP API: a request in, one call of `JobsApi`, its answer out. No rule of a job is here.

They are plain functions, as the service is synchronous: each runs in a thread of the pool. A view of the service is
sent as it is; the models only describe it in the OpenAPI document. What every request passes is beside this folder.
"""
