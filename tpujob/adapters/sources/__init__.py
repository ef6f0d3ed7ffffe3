"""Where data comes from outside Cloud Storage: `data.objects.SourceReader` for S3 and for files on the web.

Nothing is written there. What a source says of its bytes is judged in `data/checksums.py`; which URLs are safe,
in `data/locations.py`. boto3 is an extra of the package, imported at the first call.
"""
