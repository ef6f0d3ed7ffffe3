"""One vendor each: translate to and from a port. Know neither each other nor the service."""
