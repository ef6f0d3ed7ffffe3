"""Google Cloud on a laptop: the TPU API, Cloud Storage, hosts with SSH and metadata servers, and fault injection.

The emulator knows nothing of jobs. Callers import its modules, not this package, to keep start times short: `client`
and `fault_commands` for commands, `storage` for tests; `__main__` and `farm` run as processes.
"""

from collections.abc import Mapping

#: The mean number of faults of each kind in an hour of chaos at rate 1.
CHAOS_PER_HOUR: Mapping[str, float] = {
    "preempt": 6.0,
    "maintain": 1.0,
    "stockout": 4.0,
    "api-error": 20.0,
    "storage-error": 20.0,
    "slow": 4.0,
    "hang": 0.5,
    "silence": 0.5,
    "oom": 0.5,
}
