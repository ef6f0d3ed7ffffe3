"""A stand-in for the agent, so that the port Hosts is tested without one: the same answers, and orders in the plan.

`refuse: {error, cause}` says no; `hang: true` never answers; `flood: true` prints without end; else `command` runs.
`live` counts for attempt 1 until no client listens, is silent for attempt 2, ends for attempt 3, has nothing of others.
`status` knows of the attempt that was started last.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path.home() / ".tpujob"
STATE = FOLDER / "state.json"


def running() -> dict:
    try:
        state = json.loads(STATE.read_text())
        fields = Path(f"/proc/{state['pid']}/stat").read_text().rpartition(")")[2].split()
        return state if fields[0] not in "ZX" else {}
    except (FileNotFoundError, ProcessLookupError):
        return {}


def start(plan: dict) -> dict:
    if "--secrets-on-stdin" in sys.argv:
        (FOLDER / "told").write_text(sys.stdin.read())
    with (FOLDER / "calls").open("a") as calls:
        calls.write("start\n")
    if plan.get("flood"):
        while True:
            print("x" * 65536)
    if plan.get("hang"):
        time.sleep(600)
    if plan.get("refuse"):
        return {"ok": False, **plan["refuse"]}
    now = running()
    if now:
        return {"ok": True, "state": "already", **now}
    child = subprocess.Popen(
        plan["command"],
        env={**os.environ, **plan.get("env", {})},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=(FOLDER / "out").open("wb"),
        stderr=subprocess.DEVNULL,
    )
    STATE.write_text(json.dumps({"pid": child.pid, "job": plan["job"], "attempt": plan["attempt"]}))
    return {"ok": True, "state": "started", "attempt": plan["attempt"], "pid": child.pid}


def stop() -> dict:
    now = running()
    if now:
        os.killpg(now["pid"], signal.SIGKILL)
        while running():
            time.sleep(0.01)
    return {"ok": True, "state": "stopped"}


def live(job: str, attempt: int) -> None:
    if attempt > 3:
        sys.exit(print(json.dumps({"ok": False, "error": "nothing can be followed here"})))
    (FOLDER / "listened").write_text(str(os.getpid()))
    for number in range(10**6):
        print(json.dumps({"kind": "count", "job": job, "number": number}), flush=True)
        if attempt == 3 and number == 2:
            return
        seconds = 600 if attempt == 2 else 0.02
        if select.select([sys.stdin], [], [], seconds)[0] and not sys.stdin.buffer.read(1):
            return


def status() -> dict:
    try:
        state = json.loads(STATE.read_text())
    except FileNotFoundError:
        return {"ok": True, "attempts": []}
    attempt = {"job": state["job"], "attempt": state["attempt"], "phase": "running"}
    return {"ok": True, "attempts": [{**attempt, "live": bool(running())}]}


print("a login shell may print something first")
verb = sys.argv[1]
if verb == "live":
    sys.exit(live(sys.argv[2], int(sys.argv[3])))
if verb == "start":
    answer = start(json.loads(Path(sys.argv[2]).read_text()))
else:
    answer = status() if verb == "status" else stop()
print(json.dumps(answer))
sys.exit(0 if answer["ok"] else 1)
