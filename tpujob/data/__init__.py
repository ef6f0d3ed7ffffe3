"""Copies the user's data between a folder and Cloud Storage: which names fit, what differs, how one file is copied so
that it is whole and verified, and what that costs (`sync`). Packs small files into shards (`pack`, `unpack`).

Reaches the storage through `objects.Objects` only; which server that is, the wiring says. Jobs, checkpoints and logs
are not data in this sense: they have the port `Blobs`.
"""
