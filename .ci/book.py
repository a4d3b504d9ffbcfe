#!/usr/bin/env python3
"""Checks the links of the documentation, and assembles the source of the site for mdBook.

`book.py check` checks the relative links, images and anchors of all Markdown files of the repository.
`book.py build` also makes the site in target/book: it copies the pages of docs/SUMMARY.md, with the files
that they link to, to target/book-src, runs `mdbook build` there, and checks the links, images and anchors of
the HTML pages. The README is the first page.
"""
import html.parser
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = ROOT / "docs/SUMMARY.md"
SOURCE = ROOT / "target/book-src"
SITE = ROOT / "target/book"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(\s*([^()\s]+(?:\([^()]*\))?)\s*\)")
README = re.compile(r"(\]\((?!\w+:)[^()\s]*)\bREADME\.md(?=[)#])")
FENCE = re.compile(r"^(```|~~~)")


def text_lines(path):
    """The lines outside of code blocks, with inline code removed, and their numbers."""
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if FENCE.match(line.strip()):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def slugs(path):
    """The anchors of the headings, as GitHub and mdBook make them."""
    found, counts = set(), {}
    for _, line in text_lines(path):
        heading = re.match(r"#{1,6} +(.*?)\s*#*$", line)
        if heading:
            words = LINK.sub(lambda link: link[2], heading[1]).lower()
            slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            count = counts.get(slug, 0)
            counts[slug] = count + 1
            found.add(f"{slug}-{count}" if count else slug)
    return found


def links(path):
    """The relative links of a page: line number, path and anchor. Links may span two lines."""
    lines = list(text_lines(path))
    joined = "\n".join(re.sub(r"`[^`]*`", "", line) for _, line in lines)
    numbers = [number for number, _ in lines]
    for link in LINK.finditer(joined):
        target = link[3]
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        number = numbers[joined.count("\n", 0, link.start())]
        yield number, (path.parent / name).resolve() if name else path, anchor


def pages():
    """The pages of the site, in order."""
    return [target for _, target, _ in links(SUMMARY)]


def check(files):
    faults = []
    for path in files:
        for number, target, anchor in links(path):
            where = f"{path.relative_to(ROOT)}:{number}"
            if not target.exists():
                faults.append(f"{where}: there is no {os.path.relpath(target, ROOT)}")
            elif anchor and target.suffix == ".md" and anchor not in slugs(target):
                faults.append(f"{where}: {target.name} has no heading #{anchor}")
    return faults


def unlisted(listed):
    """The pages of the guide and the design that the summary omits, which come last."""
    found = [*ROOT.glob("docs/guide/*.md"), *ROOT.glob("docs/design/*.md")]
    return sorted(page for page in found if page not in listed)


def assemble():
    """Copies the pages to the same places below SOURCE, so that their links stay valid."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    listed = pages()
    more = unlisted(listed)
    listed += more
    first = {page.parent: page for page in reversed(listed)}
    # Evidence, as pages after all others, and other files as they are.
    copied = list(listed)
    for page in copied:
        place = SOURCE / page.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix != ".md":
            shutil.copy(page, place)
            continue
        text = page.read_text()
        for _, target, _ in links(page):
            if target.is_dir():
                # A directory becomes its first page.
                name = os.path.relpath(target, page.parent)
                there = first.get(target)
                if there:
                    text = text.replace(f"]({name})", f"]({os.path.relpath(there, page.parent)})")
            elif target not in copied:
                copied.append(target)
        # mdBook names the page of a README.md index.html.
        place.write_text(README.sub(r"\1index.md", text))
    summary = SUMMARY.read_text()
    for page in listed:
        name = os.path.relpath(page, SUMMARY.parent)
        summary = summary.replace(f"]({name})", f"]({page.relative_to(ROOT)})")
    evidence = sorted(path for path in copied[len(listed):] if path.suffix == ".md")
    if more:
        names = (page.relative_to(ROOT) for page in more)
        summary += "\n# More\n\n" + "".join(f"- [{name.stem}]({name})\n" for name in names)
    entries = [f"- [{path.parent.name}: {path.stem}]({path.relative_to(ROOT)})" for path in evidence]
    (SOURCE / "SUMMARY.md").write_text(f"{summary}\n# Evidence\n\n" + "\n".join(entries) + "\n")


class Page(html.parser.HTMLParser):
    """The anchors and the links of an HTML page."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def build():
    """Makes the site, and returns the faults of its links."""
    assemble()
    shutil.rmtree(SITE, ignore_errors=True)
    subprocess.run(["mdbook", "build", ROOT], check=True)
    # The server of the site fills in the base address of the page for missing pages.
    found = {path: Page(path) for path in SITE.rglob("*.html") if path.name != "404.html"}
    faults = [f"the site has no page for {page.relative_to(ROOT)}" for page in pages()
              if not rendered(page).exists()]
    count = 0
    for path, page in found.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            count += 1
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            anchor = urllib.parse.unquote(url.fragment)
            where = f"{path.relative_to(SITE)}: {link}"
            if target.is_dir():
                target /= "index.html"
            if not target.exists() or not target.is_relative_to(SITE):
                faults.append(f"{where} does not exist")
            elif anchor and target in found and anchor not in found[target].anchors:
                faults.append(f"{where} has no such anchor")
    if not faults:
        print(f"{len(found)} pages with {count} links in {SITE.relative_to(ROOT)}")
    return faults


def rendered(page):
    """The HTML page of a Markdown page."""
    name = "index.html" if page.name == "README.md" else f"{page.stem}.html"
    return SITE / page.relative_to(ROOT).parent / name


def main():
    if sys.argv[1:] not in (["check"], ["build"]):
        sys.exit(__doc__)
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout.splitlines()
    faults = check([path for path in map(ROOT.joinpath, names) if path.exists()])
    if not faults and sys.argv[1] == "build":
        faults = build()
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
