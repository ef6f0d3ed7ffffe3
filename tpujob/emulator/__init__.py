"""Google Cloud on a laptop: the TPU API, Cloud Storage, hosts with SSH and metadata servers, and fault injection.

It knows nothing of jobs. Callers import the modules, for the cost of imports: `client` is what commands need,
`faults` what they offer, `storage` a server for tests; `__main__` and `farm` run as processes.
"""
