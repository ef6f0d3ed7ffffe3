from tests.unit.cli.conftest import _state, api, edge, front, job_file, tpujob, url, utc

__all__ = ["_state", "api", "edge", "front", "job_file", "tpujob", "url", "utc"]
