"""Notifications: which events are reported, on which channels, with which text and when. Pure.

`ports.Outbox` stores messages, and `adapters/notify` delivers them.
"""
