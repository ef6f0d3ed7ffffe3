"""The port of host 0 on which a program waits for its other hosts."""

#: on a machine of its own, as every host of the cloud has
COORDINATOR_PORT = 8476
#: of them each emulated slice has its own
SLICE_PORTS = range(10_000, 20_000)


def coordinator_port(address: str) -> int:
    """Return the port for a program whose host 0 has that address: COORDINATOR_PORT, but on loopback a port of the
    address's own. Emulated hosts share the ports of one machine, and JAX and torch listen on all of its addresses, so
    the programs of two jobs would meet at a common port."""
    numbers = address.split(".")
    if len(numbers) != 4 or numbers[0] != "127":
        return COORDINATOR_PORT
    _, block, third, fourth = map(int, numbers)
    return SLICE_PORTS[((block * 256 + third) * 256 + fourth) % len(SLICE_PORTS)]
