"""Google Cloud on a laptop: the TPU API, Cloud Storage, hosts with SSH and metadata servers, and faults."""
