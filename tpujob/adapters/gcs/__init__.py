"""The port `Blobs` on Cloud Storage, and buckets as tpujob sets them up.

All words of the vendor end here: its errors become ours in `errors.py`.
"""
