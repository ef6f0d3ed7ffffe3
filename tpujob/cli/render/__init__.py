"""What commands print, as text: shapes in, lines out. Pure.

Each page is a module of its own, so that a command imports only what it prints. No I/O, no call of the backend.
"""
