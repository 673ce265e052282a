"""Pictures of a report for the docs, taken in Chromium: wide and light, narrow and dark.

    fsl-basesel demo
    python benchmarks/screenshots.py runs/demo/fine/report.html [--out-dir docs/figures]

`report.png` is the picture of the README; in `page-1400.png` the first class is vetoed. Needs
playwright and Chromium.
"""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

PICTURES = {
    "page-1400": (1400, 1400, False, True),
    "page-400": (400, 1500, True, False),
    "report": (1000, 1000, False, False),
}
"""Width and height, whether it is dark, and whether the first class is vetoed."""


def save(browser: Browser, page: Path, target: Path) -> None:
    """The top of the page, as a PNG file with a palette of 256 colours."""
    width, height, dark, veto = PICTURES[target.stem]
    tab = browser.new_page(viewport={"width": width, "height": height})
    tab.emulate_media(color_scheme="dark" if dark else "light")
    tab.goto(page.resolve().as_uri())
    tab.locator("#decide").wait_for()
    if veto:
        tab.locator("#choice tbody button.veto").first.click()
    tab.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(target, optimize=True)
    tab.close()
    print(f"{target} {width} x {height}, {target.stat().st_size / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--out-dir", type=Path, default=Path("docs/figures"))
    parser.add_argument("--program", default=shutil.which("chromium") or "chromium")
    args = parser.parse_args()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=args.program, args=["--no-sandbox"])
        for name in PICTURES:
            save(browser, args.page, args.out_dir / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
