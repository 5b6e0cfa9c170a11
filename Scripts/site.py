"""Scripts/site.py FOLDER BASE, for Scripts/docs: finishes and checks the static site that docc has made. Links from page to page that
are written for plain Markdown lead to the pages of the site; every link has to lead to a file; some pages are opened in Chromium, if
there is one."""
import functools
import html
import http.server
import json
import pathlib
import re
import sys
import threading

sys.dont_write_bytecode = True
root = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root / "Tests/Report"))
import browser as chromium  # noqa: E402

site, base = pathlib.Path(sys.argv[1]), sys.argv[2]
problems = []
# The pages by their catalogue and file: ("GAP", "Phases") has the address /documentation/bindrunegap/phases.
catalogues, pages = {}, {}
for catalogue in sorted(root.glob("Documentation/*.docc")) + sorted(root.glob("Sources/*/*.docc")):
    first = (catalogue / f"{catalogue.stem}.md").read_text().split("\n")
    title = re.sub("^# |``", "", first[0])
    module = title if first[0].startswith("# ``") else catalogue.stem
    catalogues[catalogue.stem] = (title, "/documentation/" + module.lower(), " ".join(first[2:first.index("", 2)]))
    for file in catalogue.rglob("*.md"):
        own = file.stem == catalogue.stem
        pages[catalogue.stem, file.stem] = catalogues[catalogue.stem][1] + ("" if own else "/" + file.stem.lower())


def exists(address):
    """A page has its data and an HTML file that loads it."""
    return (site / f"data{address}.json").is_file() and (site / address[1:] / "index.html").is_file()


def linked(url, own):
    """The page of the site for a link that is written for Markdown."""
    path, mark, fragment = url.partition("#")
    if path.startswith(base + "/documentation/"):
        return url[len(base):]  # of an earlier run
    catalogue = re.search(r"(\w+)\.docc/", path)
    page = pages.get((catalogue[1] if catalogue else own, pathlib.PurePosixPath(path).stem)) if path.endswith(".md") else None
    return page and page + mark + fragment.lower()


count = 0
names = {address.split("/")[2]: name for name, (_, address, _) in catalogues.items()}
for file in sorted((site / "data/documentation").rglob("*.json")):
    parts = file.relative_to(site / "data/documentation").with_suffix("").parts
    place, data, changed = "/".join(parts), json.loads(file.read_text()), False
    for reference in data.get("references", {}).values():
        kind, url = reference.get("type"), reference.get("url", "")
        if kind in ("image", "video", "download"):
            for variant in reference.get("variants", [reference]):
                count += 1
                if not (site / variant["url"].lstrip("/")).is_file():
                    problems.append(f"{place}: no file {variant['url']}")
        elif kind in ("topic", "section"):
            count += 1
            if not exists(url.split("#")[0]):
                problems.append(f"{place}: no page {url}")
        elif kind == "link" and not re.match("https?:|mailto:|#", url):
            count += 1
            address = linked(url, names.get(parts[0], ""))
            if address and exists(address.split("#")[0]):
                reference["url"], changed = base + address, True
            else:
                problems.append(f"{place}: {url} leads to no page")
    if changed:
        file.write_text(json.dumps(data, separators=(",", ":")))

# The first page, also for readers without scripts. docc's own has no address but /documentation.
rows = "\n".join(
    f'<dt><a href="{base}{address}/">{html.escape(title)}</a></dt><dd>{html.escape(re.sub("[`*]", "", about))}</dd>'
    for name, (title, address, about) in catalogues.items() if (root / "Sources" / name).is_dir())
(site / "index.html").write_text(f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Bindrune</title>
<link rel="icon" href="{base}/favicon.ico">
<style>:root {{ color-scheme: light dark }} body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }}
dt {{ font-weight: 600; margin-top: .7rem }} dd {{ margin: 0 }}</style></head><body>
<h1>Bindrune</h1><p>The documentation of every module. <a href="{base}{pages["Course", "Course"]}/">The course</a> begins with three octets;
<a href="{base}{pages["Decisions", "Decisions"]}/">the decisions</a> say why things are as they are.</p>
<dl>
{rows}
</dl></body></html>
""")
(site / "theme-settings.json").write_text("{}")  # docc's pages ask for it
for title, address, _ in catalogues.values():
    if not exists(address):
        problems.append(f"index: no page of {title}")


class Server(http.server.SimpleHTTPRequestHandler):
    """A static server that has the site below the base path, and nothing else."""

    def translate_path(self, path):
        return super().translate_path(path[len(base):] if path.startswith(base + "/") else "/nothing-is-here")

    def log_message(self, *_):
        pass


def visit(browser, address, title, scheme):
    browser.events.clear()
    browser.prefers(scheme)
    browser.call("Page.navigate", url="about:blank")
    browser.wait("location.href === 'about:blank'")
    browser.call("Page.navigate", url=address)
    browser.wait("location.protocol === 'http:' && document.querySelector('h1')?.innerText.trim().length")
    heading = browser.run("document.querySelector('h1').textContent.trim()")
    if heading != title:
        problems.append(f"{address}: the heading is {heading}, not {title}")
    if address.endswith("/phases/"):  # each diagram has arrived, for this appearance
        # An image loads when it comes into sight.
        for number in range(browser.wait("document.querySelectorAll('main img').length")):
            image = f"document.querySelectorAll('main img')[{number}]"
            browser.run(f"{image}.scrollIntoView()")
            browser.wait(f"{image}.complete && {image}.naturalWidth > 300")
        sources = browser.run("[...document.querySelectorAll('main img')].map((image) => image.currentSrc)")
        if any(("~dark" in source) != (scheme == "dark") for source in sources):
            problems.append(f"{address}: the diagrams for {scheme} pages are {sources}")


def browse():
    """Opens the first page and that of each module, with their pictures, in both appearances."""
    program = chromium.find()
    if not program:
        return "SKIPPED in a browser: there is no Chromium"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser, opened = chromium.Browser(program), 0
    try:
        shown = [("/", "Bindrune"), ("/documentation/", "Bindrune"), (pages["GAP", "Phases"] + "/", "Phases of GAP’s machines"),
                 (pages["SMP", "Phases"] + "/", "Phases of a pairing")]
        shown += [(address + "/", title) for title, address, _ in catalogues.values()]
        for address, title in shown:
            for scheme in ("light", "dark") if "phases" in address else ("light",):
                try:
                    visit(browser, f"http://127.0.0.1:{server.server_port}{base}{address}", title, scheme)
                except TimeoutError as waited:
                    problems.append(f"{address} in {scheme}: waited in vain for {waited}")
                problems.extend(f"{address}: {text}" for text in browser.problems())
                opened += 1
    finally:
        browser.close()
        server.shutdown()
    return f"{opened} pages opened in Chromium"


shown = "not opened in a browser" if problems else browse()
print(f"{site}: {len(catalogues)} catalogues, {count} links, {shown}")
for problem in problems[:50]:
    print(problem, file=sys.stderr)
sys.exit(1 if problems else 0)
