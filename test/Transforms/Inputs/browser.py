"""Drives a headless Chromium over its pipe, with the standard library only."""

import itertools
import json
import os
import select
import subprocess
import sys
import tempfile
import time

# Chromium reads commands from file descriptor 3 and answers on 4.
START = (
    "import fcntl, os, sys; "
    "a, b = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) "
    "for n in sys.argv[1:3]); "
    "os.dup2(a, 3); os.dup2(b, 4); os.execvp(sys.argv[3], sys.argv[3:])"
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--remote-debugging-pipe",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",
]
TIMEOUT = 120


class Browser:
    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self.out = os.pipe()
        self.answers, events = os.pipe()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                START,
                str(commands),
                str(events),
                program,
                *FLAGS,
                f"--user-data-dir={self.folder.name}",
                "about:blank",
            ],
            pass_fds=(commands, events),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(events)
        self.numbers, self.buffer, self.events = itertools.count(1), b"", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.send("Browser.close")
            self.process.wait(10)
        except (RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.answers)
        self.folder.cleanup()

    def receive(self, end):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, end - time.monotonic()))
            data = os.read(self.answers, 1 << 16) if ready else b""
            if not data:
                raise RuntimeError("the browser does not answer")
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def send(self, method, session=None, **parameters):
        """The answer to a command; events meanwhile are kept."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data) :]
        end = time.monotonic() + TIMEOUT
        while True:
            found = self.receive(end)
            if found.get("id") != number:
                self.events.append(found)
            elif "error" in found:
                raise RuntimeError(f"{method}: {found['error']['message']}")
            else:
                return found["result"]

    def wait_for(self, method):
        end = time.monotonic() + TIMEOUT
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.receive(end))


class Page:
    """A file in a tab, loaded, with what it did meanwhile."""

    def __init__(self, browser, path, width, height):
        self.browser = browser
        browser.events.clear()
        self.target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=self.target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.send(f"{domain}.enable")
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.url = path.resolve().as_uri()
        self.send("Page.navigate", url=self.url)
        browser.wait_for("Page.loadEventFired")
        # What scripts do at once comes before the answer.
        self.evaluate("0")

    def close(self):
        self.browser.send("Target.closeTarget", targetId=self.target)

    def send(self, method, **parameters):
        return self.browser.send(method, self.session, **parameters)

    def evaluate(self, expression):
        found = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def move_mouse(self, x, y):
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.evaluate("new Promise(requestAnimationFrame)")

    def complaints(self):
        """What scripts threw and what the console shows."""
        found = []
        for event in self.browser.events:
            given = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                details = given["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif event.get("method") == "Log.entryAdded":
                found.append(given["entry"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled":
                found.append(str(given["args"]))
        return found

    def requests(self):
        return [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
