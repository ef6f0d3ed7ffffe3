"""The HTTP face of the backend."""
