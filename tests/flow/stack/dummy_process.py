"""A stand-in for one process of the local stack: `python -I dummy_process.py READY STORY NAME HOW`.

HOW: crash: prints and ends; mute: is never up; gate=FILE: is up once that file is there; stubborn: ignores SIGTERM.
"""

import json
import os
import signal
import sys
import time


def main(ready: str, story: str, name: str, how: str) -> None:
    def tell(event: str) -> None:
        with open(story, "a") as file:
            file.write(f"{name} {event}\n")

    def end(*_: object) -> None:
        tell("ended")
        sys.exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "stubborn" else end)
    tell("began")
    print(f"{name} begins")
    if how == "crash":
        print("the port is taken", file=sys.stderr)
        sys.exit(3)
    gate = how.partition("gate=")[2]
    while how == "mute" or (gate and not os.path.exists(gate)):
        time.sleep(0.01)
    record = {
        "pid": os.getpid(),
        "url": f"unix:/{name}",
        "parent": os.getppid(),
        "session": os.getsid(0),
        "stdin": os.readlink("/proc/self/fd/0"),
        "folder": os.getcwd(),
    }
    with open(f"{ready}.tmp", "w") as file:
        json.dump(record, file)
    tell("up")  # before anybody can know it, who would start the next one
    os.replace(f"{ready}.tmp", ready)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
