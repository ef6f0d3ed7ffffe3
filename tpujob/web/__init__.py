"""The backend over HTTP: `JobsApi` as JSON, authentication, and the processes that serve it. No rule of a job is here.

Other rooms run its modules (`python -m tpujob.web`) and import none, as each import brings fastapi.
"""
