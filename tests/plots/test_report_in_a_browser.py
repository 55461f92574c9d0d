"""The report in a real browser: no overlap, overflow, download or error.

Skipped without Chromium (Debian: apt install chromium).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from dynbatch.harness.planning.artifacts import Choices
from dynbatch.harness.planning.config import Composer
from tests.support.experiments import ANSWERS, FIGURE, TABLE, build_page, draw_answers, draw_made_up

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BROWSER, reason="there is no Chromium"),
]

# Checks the page that contains it, and reports to the enclosing page.
LOOK = """<script>addEventListener("load", () => {
  const wide = document.documentElement.scrollWidth - innerWidth;
  const overlaps = [];
  for (const parent of document.querySelectorAll("main, main section, .kinds > div")) {
    const shown = [...parent.children].filter((e) => e.getClientRects().length);
    for (const [k, e] of shown.entries()) {
      for (const other of shown.slice(k + 1)) {
        const a = e.getBoundingClientRect(), b = other.getBoundingClientRect();
        const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (x > 1 && y > 1) overlaps.push(`${e.tagName} ${e.id} with ${other.tagName} ${other.id}`);
      }
    }
  }
  const cut = [...document.querySelectorAll("h1, h2, h3, h4, p, summary")].filter(
    (e) => e.getClientRects().length && e.scrollWidth > e.clientWidth + 1
      && getComputedStyle(e).display !== "inline");
  parent.postMessage({wide, overlaps, cut: cut.map((e) => e.textContent), width: innerWidth,
    fetched: performance.getEntriesByType("resource").map((e) => e.name)}, "*");
});</script>"""
AROUND = """<!DOCTYPE html><body><script>addEventListener("message", (m) => {
  document.body.setAttribute("data-found", JSON.stringify(m.data)); });</script>
<iframe src="report.html" width="%d" height="900" style="border:0"></iframe>"""


@pytest.fixture
def folder(choices: Choices, composer: Composer) -> Path:
    """Return a directory with a report that checks itself."""
    draw_made_up(choices, composer, FIGURE, TABLE)
    draw_answers(choices, composer)
    page = build_page(choices, ANSWERS, FIGURE, TABLE)
    (choices.results_dir / "report.html").write_text(page.replace("</body>", f"{LOOK}</body>"))
    return choices.results_dir


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_at_every_width(folder: Path, width: int, scheme: str) -> None:
    (folder / "around.html").write_text(AROUND % width)
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--allow-file-access-from-files",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width + 40},1000",
            "--virtual-time-budget=8000",
            *dark,
            "--dump-dom",
            (folder / "around.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    reported = re.search(r'data-found="([^"]*)"', done.stdout)
    assert reported, done.stderr[-2000:]
    found = json.loads(unescape(reported.group(1)))
    assert found["width"] == width
    assert found["wide"] <= 1, "the page is wider than the window"
    assert found["overlaps"] == []
    assert found["cut"] == []
    assert [name for name in found["fetched"] if not name.startswith("data:")] == []
    assert "CONSOLE" not in done.stderr
