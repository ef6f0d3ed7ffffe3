"""Stands in for gcloud: `relay.py PLACES compute start-iap-tunnel INSTANCE PORT --listen-on-stdin ...` carries its
stdin and stdout to the address in the file INSTANCE of the folder PLACES, and notes that it ran.
"""

import os
import selectors
import socket
import sys
import uuid
from pathlib import Path

places = Path(sys.argv[1])
compute, start, instance, port, listen, *flags = sys.argv[2:]
assert (compute, start, listen) == ("compute", "start-iap-tunnel", "--listen-on-stdin"), sys.argv
(places / f"ran-{uuid.uuid4()}").write_text(" ".join([instance, port, *flags]))
place = places / instance
if not place.exists():
    print(
        "ERROR: (gcloud.compute.start-iap-tunnel) Error while connecting [4033: 'not authorized'].",
        file=sys.stderr,
    )
    print(
        "WARNING: \n\nTo increase the performance of the tunnel, consider installing NumPy. For instructions,\n"
        "please see https://cloud.google.com/iap/docs/using-tcp-forwarding#increasing_the_tcp_upload_bandwidth\n",
        file=sys.stderr,
    )
    sys.exit(1)
host = socket.create_connection((place.read_text(), int(port)))
chosen = selectors.DefaultSelector()
chosen.register(0, selectors.EVENT_READ)
chosen.register(host, selectors.EVENT_READ)
with host.makefile("wb", buffering=0) as far, open(1, "wb", buffering=0) as near:
    while True:
        for key, _ in chosen.select():
            ours = key.fileobj == 0
            data = os.read(0, 65536) if ours else host.recv(65536)
            if not data:
                sys.exit(0)
            left = memoryview(data)
            while left:
                left = left[(far if ours else near).write(left) :]
