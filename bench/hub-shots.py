#!/usr/bin/env python3
"""Takes pictures of the pages of a public hub in Chromium: 1400 and 390 px, light, dark and print.

Usage: bench/hub-shots.py https://127.0.0.1:PORT DIR NAME=PATH...

Chromium and chromedriver are the Debian packages chromium and chromium-driver. DIR/NAME-1400-light.png and so on
are the pictures of whole pages.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

# Chromium sends nothing to other hosts.
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
]


def call(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    return json.loads(urllib.request.urlopen(request, timeout=90).read())["value"]


def main():
    base, directory, *pages = sys.argv[1:]
    os.makedirs(directory, exist_ok=True)
    profile = tempfile.TemporaryDirectory()
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        port = next(line.rstrip(".\n").split()[-1] for line in driver.stdout if "successfully on port" in line)
        options = {"args": [*FLAGS, f"--user-data-dir={profile.name}"]}
        wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "acceptInsecureCerts": True, "goog:chromeOptions": options}}}
        session = f"http://127.0.0.1:{port}/session/" + call("POST", f"http://127.0.0.1:{port}/session", wanted)["sessionId"]
        chrome = lambda command, parameters: call("POST", f"{session}/goog/cdp/execute", {"cmd": command, "params": parameters})
        for page in pages:
            name, path = page.split("=", 1)
            for width in (1400, 390):
                chrome("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
                for style in ("light", "dark", "print"):
                    if style == "print" and width == 390:
                        continue
                    media = {"media": "print" if style == "print" else "screen", "features": [{"name": "prefers-color-scheme", "value": "dark" if style == "dark" else "light"}]}
                    chrome("Emulation.setEmulatedMedia", media)
                    call("POST", f"{session}/url", {"url": base + path})
                    time.sleep(0.5)
                    picture = chrome("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True})
                    open(f"{directory}/{name}-{width}-{style}.png", "wb").write(base64.b64decode(picture["data"]))
        call("DELETE", session)
    finally:
        driver.kill()
        driver.wait()
        profile.cleanup()


if __name__ == "__main__":
    main()
