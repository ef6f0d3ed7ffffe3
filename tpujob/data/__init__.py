"""Copies the user's data between a folder, Cloud Storage, S3 and the web, file by file and verified (`sync`). Packs
small files into shards (`pack`, `unpack`).

This package reads and writes Cloud Storage through `objects.Objects` alone; the wiring supplies the adapter. Jobs,
checkpoints and logs are not data in this sense: they have the port `Blobs`.
"""
