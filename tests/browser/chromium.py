"""A Chromium without a window, driven over a pipe (its DevTools protocol).

    with Chromium() as browser:
        page = browser.open("http://127.0.0.1:6070/", width=1280, height=800)
        page.wait("document.title === 'gradus'")
        page.screenshot("picture.png")
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which(
    "google-chrome")


class Chromium:

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="gradus-chromium-")
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()

        # The browser reads commands from descriptor 3 and writes answers to 4.
        def place():
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             "--no-first-run", "--disable-extensions", "--disable-background-networking",
             "--disable-component-update", "--hide-scrollbars", "--disable-dev-shm-usage",
             "--password-store=basic", f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.number = 0
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        wanted = self.number
        while True:
            while b"\0" not in self.buffer:
                piece = os.read(self.into, 1 << 20)
                if not piece:
                    raise RuntimeError("Chromium has ended")
                self.buffer += piece
            text, self.buffer = self.buffer.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") == wanted:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def open(self, address, width=1280, height=800, dark=False, phone=False):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, address, width, height, dark, phone)


class Page:

    def __init__(self, browser, session, address, width, height, dark, phone):
        self.browser, self.session = browser, session
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height, phone)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        if phone:
            self.call("Emulation.setTouchEmulationEnabled", enabled=True)
        self.call("Page.navigate", url=address)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=phone)

    def run(self, script):
        """The value of an expression; waits for a promise."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True,
                           returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, script, patience=30):
        """Until the expression is true; returns its value."""
        end = time.monotonic() + patience
        while True:
            try:
                value = self.run(script)
            except RuntimeError as error:
                value, why = None, str(error)
            else:
                why = ""
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"did not come true: {script} {why}")
            time.sleep(0.03)

    def key(self, key, text=None):
        names = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39,
                 "ArrowUp": 38, "ArrowDown": 40}
        extra = {"windowsVirtualKeyCode": names[key]} if key in names else {"text": text or key}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **extra)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def mouse(self, kind, x, y, buttons=1, modifiers=0):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if kind !=
                  "mouseMoved" else "none", buttons=buttons, clickCount=1, modifiers=modifiers)

    def click(self, selector):
        x, y = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
                        "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
                        "return [b.left + b.width / 2, b.top + b.height / 2]; })()")
        self.mouse("mouseMoved", x, y, 0)
        self.mouse("mousePressed", x, y)
        self.mouse("mouseReleased", x, y, 0)

    def drag(self, x0, y0, x1, y1, steps=12, modifiers=0):
        self.mouse("mouseMoved", x0, y0, 0, modifiers)
        self.mouse("mousePressed", x0, y0, 1, modifiers)
        for i in range(1, steps + 1):
            self.mouse("mouseMoved", x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps, 1,
                       modifiers)
        self.mouse("mouseReleased", x1, y1, 0, modifiers)

    def screenshot(self, file):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(file, "wb") as picture:
            picture.write(base64.b64decode(data))

    def problems(self):
        """What the page reported as an error: exceptions, blocked or failed loads."""
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            if event["method"] == "Runtime.exceptionThrown":
                details = event["params"]["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            if event["method"] == "Log.entryAdded":
                entry = event["params"]["entry"]
                if entry["level"] == "error":
                    found.append(f"{entry['text']} {entry.get('url', '')}")
        return found

    def addresses(self):
        """All addresses that the page has asked for."""
        return [event["params"]["request"]["url"] for event in self.browser.events
                if event.get("sessionId") == self.session and
                event["method"] == "Network.requestWillBeSent"]
