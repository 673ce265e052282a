"""Time from a click on the page to the new choice: veto the first class, again and again.

    python benchmarks/page.py [--rounds 15] [--program /usr/bin/chromium]

Prints, for 1000 candidates x 100 novel classes and for 5000 x 500, the size of the page, the
milliseconds until it can be used, and the median, 20 % and 80 % quantiles of the milliseconds from
a click to a table that is drawn, in a real browser. Needs playwright and Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, sync_playwright

import fsl_basesel as fb
from fsl_basesel.report.page import html_page
from fsl_basesel.report.record import save_classes
from fsl_basesel.report.run import read_run
from fsl_basesel.similarity import ClassCentroids

CLICK = """() => {
  const button = document.querySelector("#choice tbody button.veto");
  const began = performance.now();
  button.click();
  document.body.offsetHeight;
  return performance.now() - began;
}"""


def page_of(folder: Path, candidates: int, novel: int, m: int, k: int) -> Path:
    """A page of random centroids that lie in families, as classes do."""
    draw = np.random.default_rng(0)
    families = draw.normal(size=(40, 32))
    base, task = (
        families[draw.integers(0, 40, count)] + draw.normal(size=(count, 32))
        for count in (candidates, novel)
    )
    problem = fb.SelectionProblem.from_centroids(base, task, m=m, k=k)
    fb.select(problem, "greedy-target").save(folder / "selection.json")
    save_classes(folder, 1, ClassCentroids(base), ClassCentroids(task))
    path = folder / "report.html"
    path.write_text(html_page(read_run(folder)), encoding="utf-8")
    return path


def measure(browser: Browser, path: Path, rounds: int) -> tuple[float, list[float]]:
    """Milliseconds until the page can be used, and from each click to the new choice."""
    page = browser.new_page()
    began = time.perf_counter()
    page.goto(path.as_uri())
    page.locator("#decide").wait_for()
    loaded = 1000 * (time.perf_counter() - began)
    clicks = [float(page.evaluate(CLICK)) for _ in range(rounds)]
    page.close()
    return loaded, clicks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--program", default=shutil.which("chromium") or "chromium")
    args = parser.parse_args()
    print("candidates novel   m  k     MB  ready ms  click ms (median, 20 %, 80 %)")
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as parent:
        browser = driver.chromium.launch(
            executable_path=args.program, args=["--no-sandbox", "--disable-gpu"]
        )
        for candidates, novel, m, k in ((1000, 100, 50, 3), (5000, 500, 100, 3)):
            folder = Path(parent) / str(candidates)
            folder.mkdir()
            path = page_of(folder, candidates, novel, m, k)
            loaded, clicks = measure(browser, path, args.rounds)
            cuts = statistics.quantiles(clicks, n=5)
            size = path.stat().st_size / 1e6
            print(
                f"{candidates:10} {novel:5} {m:3} {k:2} {size:6.2f} {loaded:9.0f}  "
                f"{statistics.median(clicks):.0f}, {cuts[0]:.0f}, {cuts[-1]:.0f}"
            )
        browser.close()


if __name__ == "__main__":
    main()
