"""What mkdocs does to the pages of docs/ so that they read on the site as they do in the repository.

- Pages at the root (README, CONTRIBUTING, ...) become pages of the site; README becomes its front page.
- Folders in the navigation that end in ``/`` are filled with their pages.
- A link to an example or to a file of deploy/ leads to a copy of it in ``files/``, a link to a folder to a
  list of what it holds.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
}
COPIED = ("examples", "deploy", "benchmarks")  # folders whose files pages link to
COPIED_FILES = ("LICENSE", "client/pyproject.toml")
_LINK = re.compile(r"(\]\()([^)\s#]+)")
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the folders of the navigation."""
    config.nav = _filled(config.nav)
    return config


def _filled(entry: Any) -> Any:
    if isinstance(entry, list):
        return [_filled(one) for one in entry]
    if isinstance(entry, dict):
        return {title: _filled(value) for title, value in entry.items()}
    if not entry.endswith("/"):
        return entry
    pages = sorted((ROOT / "docs" / entry).glob("*.md"), key=lambda p: (p.name != "index.md", p))
    listed = [] if pages[0].name == "index.md" else [{"All of them": f"{entry}index.md"}]
    return listed + [{_title(page): f"{entry}{page.name}"} for page in pages]


def _title(page: Path) -> str:
    found = _TITLE.search(page.read_text())
    return found[1] if found else page.stem


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, copies of files, and lists of folders."""
    for name, uri in ROOT_PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text()))
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    listed = "".join(f"- [{_title(page)}]({page.name})\n" for page in pages)
    content = f"# Decisions\n\n{listed}"
    files.append(File.generated(config, "decisions/index.md", content=content))
    copied = [path for name in COPIED for path in (ROOT / name).rglob("*")]
    for path in sorted([*copied, *(ROOT / name for name in COPIED_FILES)]):
        if path.is_file() and "__pycache__" not in path.parts:
            uri = f"files/{path.relative_to(ROOT)}.txt"
            files.append(File.generated(config, uri, content=path.read_bytes()))
    for folder in sorted(path for name in COPIED for path in _folders(ROOT / name)):
        files.append(File.generated(config, _list_uri(folder), content=_list(folder)))
    return files


def _folders(top: Path) -> list[Path]:
    return [path for path in (top, *top.rglob("*")) if path.is_dir() and path.name != "__pycache__"]


def _list_uri(folder: Path) -> str:
    return f"files/{folder.relative_to(ROOT)}/index.md"


def _list(folder: Path) -> str:
    lines = [f"# {folder.relative_to(ROOT)}/\n"]
    for path in sorted(folder.iterdir()):
        if path.name != "__pycache__":
            target = f"{path.name}/index.md" if path.is_dir() else f"{path.name}.txt"
            lines.append(f"- [{path.name}]({target})")
    return "\n".join(lines) + "\n"


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Turn links to files outside docs/ into links within the site."""
    uri = page.file.src_uri
    if uri.startswith("files/") or uri == "decisions/index.md":
        return markdown
    here = next((name for name, own in ROOT_PAGES.items() if own == uri), f"docs/{uri}")

    def within(match: re.Match[str]) -> str:
        if "://" in match[2]:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2]))
        return match[1] + posixpath.relpath(_address(path), posixpath.dirname(uri) or ".")

    parts, end = [], 0
    for fenced in _FENCED.finditer(markdown):
        parts += [_LINK.sub(within, markdown[end : fenced.start()]), fenced[0]]
        end = fenced.end()
    return "".join(parts) + _LINK.sub(within, markdown[end:])


def _address(path: str) -> str:
    """Where the site has a file of the repository; itself where it has none, so that mkdocs complains."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if path.startswith("docs/"):
        inside = path.removeprefix("docs/")
        return f"{inside}/index.md" if (ROOT / path).is_dir() else inside
    if path.split("/")[0] not in COPIED and path not in COPIED_FILES:
        return path
    return _list_uri(ROOT / path) if (ROOT / path).is_dir() else f"files/{path}.txt"
