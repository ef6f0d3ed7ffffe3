from tests.unit.workloads.conftest import _in_haste, cache, cold_job, job, warm

__all__ = ["_in_haste", "cache", "cold_job", "job", "warm"]
