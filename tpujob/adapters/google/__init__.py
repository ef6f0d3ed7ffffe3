"""Looks at a project on Google Cloud, by REST: identity, project, quotas. Only asks, never changes.

What follows from what was seen belongs to `doctor/`.
"""
