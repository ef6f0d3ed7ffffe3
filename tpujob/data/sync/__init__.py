"""Syncs: lists both ends, finds the differences, and copies each object complete and verified. The entry point is
`run.Sync`.
"""
