"""Records the demo's live page: `make recording` writes docs/images/demo.gif and three pictures.

Needs Chromium (`apt-get install -y chromium`); takes as long as the demo, about ninety seconds.
"""

from __future__ import annotations

import io
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SECONDS = 60
EVERY = 2.5  # seconds between frames
IMAGES = Path(__file__).parent / "images"
TEXT = ("#171a26", "#565d73", "#3451c6", "#0b6a49", "#b4232c")
COLOURS = (*TEXT, "#ffffff", "#f6f7fb", "#e2e5ef", "#eceef4", "#f0f3fc", "#4c6ef5", "#e8930c",
           "#12a594", "#c2418c", "#d79cc0", "#e7ecfd", "#def5ea", "#fdf0d9", "#8f5200", "#fde5e6",
           "#eaeefe")  # fmt: skip
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


def main() -> None:
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser_path is None:
        sys.exit("recording needs a browser: apt-get update && apt-get install -y chromium")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["demo", "--devices", "4", "--seconds", str(SECONDS), "--no-open"]
    demo = subprocess.Popen([sys.executable, "-m", "cans", *words, "--dashboard", address],
                            stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
            _record(browser, f"http://{address}/", demo)
            browser.close()
    finally:
        demo.wait(60)


def _record(browser: Any, address: str, demo: subprocess.Popen[bytes]) -> None:
    tab = browser.new_page(viewport={"width": 1280, "height": 640})
    _open(tab, address, demo)
    frames, begin = [], time.monotonic()
    while (now := time.monotonic() - begin) < 0.85 * SECONDS and demo.poll() is None:
        frames.append(tab.screenshot())
        if 0.30 < now / SECONDS < 0.30 + EVERY / SECONDS:
            (IMAGES / "page-fleet.png").write_bytes(_small(tab.screenshot()))
            dark = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="dark")
            name = tab.locator("tr[data-device]").nth(2).get_attribute("data-device")
            for view, file, ready in ((f"device/{name}", "page-device", ".strip div"),
                                      ("learning", "page-learning", ".pool .big")):  # fmt: skip
                dark.goto(f"{address}#/{view}")
                dark.wait_for_selector(ready, timeout=15_000)
                time.sleep(1.0)
                (IMAGES / f"{file}.png").write_bytes(_small(dark.screenshot()))
            dark.close()
        time.sleep(max(EVERY - (time.monotonic() - begin - now), 0.0))
    _animate(frames)


def _open(tab: Any, address: str, demo: subprocess.Popen[bytes]) -> None:
    """Open the page as soon as it is there."""
    while demo.poll() is None:
        try:
            tab.goto(address)
            tab.wait_for_selector("tr[data-device]", timeout=60_000)
            return
        except Exception:
            time.sleep(0.5)
    sys.exit("the demo ended before its page could be seen")


def _small(png: bytes) -> bytes:
    """The same picture in 128 colours."""
    from PIL import Image

    written = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(128).save(written, "png", optimize=True)
    return written.getvalue()


def _palette() -> Any:
    """The page's own colours and the way from each of them to what it stands on: a palette that is
    found by area has no room for bars and pills, and they look pale."""
    from PIL import Image, ImageColor

    shades = []
    for colour in COLOURS:
        red, green, blue = ImageColor.getrgb(colour)
        steps = 10 if colour in TEXT else 5
        for step in range(steps):
            share = step / steps
            shades += [round(each + share * (255 - each)) for each in (red, green, blue)]
    assert len(shades) <= 768
    found = Image.new("P", (1, 1))
    found.putpalette(shades + shades[:3] * (256 - len(shades) // 3))
    return found


def _animate(frames: list[bytes]) -> None:
    from PIL import Image

    size, palette = (960, 480), _palette()
    shown = [
        Image.open(io.BytesIO(each)).convert("RGB").resize(size, Image.Resampling.LANCZOS)
        .quantize(palette=palette, dither=Image.Dither.NONE)
        for each in frames
    ]  # fmt: skip
    shown[0].save(
        IMAGES / "demo.gif", save_all=True, append_images=shown[1:], duration=600, loop=0,
        optimize=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
