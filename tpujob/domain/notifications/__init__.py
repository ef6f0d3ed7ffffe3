"""What users are notified about: which events, on which channels, in which words, and when a message is sent. Pure.

No sending, no storing and no secrets here: messages wait in `ports.Outbox`, and `adapters/notify` delivers them.
"""
