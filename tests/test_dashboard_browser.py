"""The dashboard in a browser that has no network: it draws, and it lists the regression."""

import shutil
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from asv_bench import dashboard, offline

from . import dashboard_support as support

pytest.importorskip("asv", reason="asv is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: what keeps the browser's own business off the network, and what it needs as root
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MS = 60_000


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        """Say nothing."""


@contextmanager
def served(directory):
    """Serve a directory on a free port of this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=directory)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    try:
        modules = offline.packages(offline.cache_directory())
    except offline.UnavailableError as error:
        pytest.skip(str(error))
    arguments = support.published(tmp_path_factory.mktemp("site"))
    dashboard.dashboard(**arguments, modules=modules)
    return arguments["html"]


@pytest.fixture(scope="module")
def browser():
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def visit(site, browser):
    """Return a function that opens a part of the site.

    Anything that the page asks of another host is refused, and fails the test; so does a
    file that the site itself has not, and an error in a script.
    """
    refused, troubles = [], []
    with served(site) as address:
        host = urlsplit(address).netloc

        def only_local(route):
            if urlsplit(route.request.url).netloc == host:
                route.continue_()
            else:
                refused.append(route.request.url)
                route.abort()

        context = browser.new_context(viewport={"width": 1200, "height": 800})
        context.route("**/*", only_local)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "response",
            lambda answer: troubles.append(answer.url) if answer.status >= 400 else None,
        )

        def go(part):
            page.goto(f"{address}#{part}")
            return page

        yield go
        context.close()
    assert refused == []
    assert troubles == []


def test_site_loads_nothing_from_elsewhere(site):
    assert list(offline.elsewhere(site)) == []
    for path, reference in offline.references(site):
        assert (path.parent / urlsplit(reference).path).is_file(), reference


def test_graph_is_drawn_with_a_point_a_commit(visit):
    page = visit(support.STEPPED)
    page.wait_for_selector("#main-graph canvas.flot-base")
    points = page.evaluate("$('#main-graph').data('plot').getData().map(one => one.data)")
    (drawn,) = [one for one in points if len(one) == support.COMMITS]
    values = [value for _, value in drawn]
    assert max(values) / min(values) == pytest.approx(3, rel=0.05)
    # a canvas that was only made is transparent all over
    assert page.evaluate(
        """() => {
            const canvas = document.querySelector('#main-graph canvas.flot-base');
            const area = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            return area.data.some(value => value !== 0);
        }"""
    )


def test_grid_shows_a_graph_for_each_benchmark(visit):
    page = visit("/")
    page.wait_for_selector("#summarygrid-display canvas.flot-base")
    names = page.locator("#summarygrid-display .benchmark-text").all_inner_texts()
    assert {name.strip() for name in names} == {
        name.partition(".")[2] for name in support.BENCHMARKS
    }


def test_regression_is_listed_and_leads_to_its_graph(visit):
    page = visit("/regressions")
    rows = page.locator("#regressions-body table:not(.ignored) tbody tr")
    rows.first.wait_for()
    assert rows.count() == 1
    cells = rows.first.locator("td").all_inner_texts()
    assert cells[0] == support.STEPPED
    assert float(cells[3].rstrip("x")) == pytest.approx(3, rel=0.05)
    rows.first.locator("a").first.click()
    page.wait_for_selector("#main-graph canvas.flot-base")


def test_list_is_sorted_by_the_column_that_is_clicked(visit):
    page = visit("/summarylist")
    names = page.locator("#summarylist-body tbody tr td:first-child")
    page.wait_for_function("location.hash.includes('dir=asc')")
    ascending = names.all_inner_texts()
    assert len(ascending) >= len(support.BENCHMARKS)
    assert ascending == sorted(ascending)
    page.locator("#summarylist-body thead th").first.click()
    page.wait_for_function("location.hash.includes('dir=desc')")
    assert names.all_inner_texts() == ascending[::-1]
