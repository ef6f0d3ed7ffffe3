"""Syncs: lists both ends, finds the differences, and copies each object verified. `run.Sync` is the entry point."""
