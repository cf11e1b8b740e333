"""Makes README's pictures: `python docs/pictures.py RUN`, of the run of `rss-rl demo --real`.

Needs Playwright and an installed Chromium (the extra `dev`).
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import rss_rl

TEXT = (
    "My brother gave me this phone , and so far I love the size of the screen and the long battery"
    " life ."
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIZES = {"explain": (1000, 420), "report": (1180, 1040)}
"""Width and height of each picture, in pixels."""


def main() -> None:
    """Write a picture of the page of a text, and one of the head of the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "pictures")
    options = parser.parse_args()
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        rss_rl.explain(options.run, [TEXT], out=Path(folder) / "explain.html")
        rss_rl.report([options.run], html=Path(folder) / "report.html")
        for name, (width, height) in SIZES.items():
            page = chromium.new_page(viewport={"width": width, "height": height})
            page.goto((Path(folder) / f"{name}.html").as_uri())
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.quantize(128).save(options.out / f"{name}.png", optimize=True)
        chromium.close()


if __name__ == "__main__":
    main()
