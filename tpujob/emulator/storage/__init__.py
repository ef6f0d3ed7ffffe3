"""Cloud Storage on a laptop: the JSON API, uploads, and the part of the XML API that clients use.

Knows nothing of Cloud TPU.
"""
