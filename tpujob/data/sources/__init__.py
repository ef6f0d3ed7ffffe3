"""Sources outside Cloud Storage, as far as they are pure: what says that a file has changed, what a server's headers
tell of its bytes, and lists of URLs. The requests are in `adapters/s3` and `adapters/https`; how it is copied is in
`data/sync`.
"""
