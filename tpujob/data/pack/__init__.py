"""Many small files as a few ArrayRecord shards, and back: the manifest, how a set is cut into shards, how a shard is
made, verified and given its name, and how each original is written again. `run.Pack` and `unpack.Unpack` are the ways
in. Sets travel to and from a bucket by `tpujob.data.sync`; what a program reads is described in docs/data.md.
"""
