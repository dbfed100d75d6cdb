"""What mkdocs does not take from docs as it stands: pages that are elsewhere in the clone, links to them, and lists as GitHub reads them."""
import ast
import pathlib
import posixpath
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Pages by their place in the clone, and on the site.
ELSEWHERE = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "SECURITY.md": "SECURITY.md", "CHANGELOG.md": "CHANGELOG.md",
             "packaging/RELEASING.md": "RELEASING.md", "docs/formats/index.md": "formats/ssidx.md"}
ICON = "resources/icons/shardscope.svg"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^\s*(```|~~~)")
ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s")
# The public names of the Python package, by what they are for.
PYTHON = {
    "Open and look": ["open", "open_sample", "Checkpoint", "Tensor", "View", "Objects", "Opaque", "formats", "recipes"],
    "Judge": ["validate", "ready", "latest", "run", "Run", "Step", "Validation", "RunValidation", "Finding", "stats"],
    "Convert": ["convert", "plan", "reshard", "average", "save", "diff"],
    "Other verbs": ["digest", "index", "extract"],
    "Loaders": ["torch.StorageReader", "safetensors_open", "callbacks"],
    "Errors and types": ["Error", "types"],
}


def reference():
    package = ast.parse((ROOT / "app/python/shardscope/__init__.py").read_text(encoding="utf-8"))
    public = next(ast.literal_eval(one.value) for one in package.body if isinstance(one, ast.Assign) and one.targets[0].id == "__all__")
    if missing := set(public) - {name.split(".")[0] for names in PYTHON.values() for name in names}:
        raise PluginError(f"the reference of the Python package lacks {sorted(missing)}: packaging/site_hooks.py")
    text = "# The Python package\n\nExamples are in [Python](python.md).\n"
    for title, names in PYTHON.items():
        text += f"\n## {title}\n" + "".join(f"\n::: shardscope.{name}\n" for name in names)
    return text


def on_files(files, config):
    for place, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / place).read_text(encoding="utf-8")))
    files.append(File.generated(config, "api.md", content=reference()))
    files.append(File.generated(config, "shardscope.svg", content=(ROOT / ICON).read_bytes()))
    return files


def moved(link, clone, site):
    """A link of the page at `clone`, for its place on the site; None: the site lacks what it leads to, which is a file of the clone."""
    target, mark, anchor = link.partition("#")
    if not target or re.match(r"[a-z]+:", target):
        return link
    place = posixpath.normpath(posixpath.join(posixpath.dirname(clone), target))
    if not (ROOT / place).exists():
        return link  # mkdocs says so
    if place not in ELSEWHERE and not place.startswith("docs/"):
        return None
    if (ROOT / place).is_dir():
        return None
    page = ELSEWHERE.get(place, place.removeprefix("docs/"))
    return posixpath.relpath(page, posixpath.dirname(site) or ".") + mark + anchor


def on_page_markdown(markdown, page, config, files):
    site = page.file.src_uri
    clone = next((place for place, there in ELSEWHERE.items() if there == site), "docs/" + site)
    lines, fenced, before = [], False, ""
    for line in markdown.splitlines():
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            def link(match):
                target = moved(match[3], clone, site)
                return match[2] if target is None else f"{match[1]}[{match[2]}]({target})"

            line = LINK.sub(link, line)
            # GitHub begins a list behind a line of text; and indents what is in it by two.
            if ITEM.match(line) and before.strip() and not ITEM.match(before) and not before.startswith((" ", "|")):
                lines.append("")
            line = re.sub(r"^( {2,3})(?=\S)", "    ", line) if ITEM.match(line) or before.strip() else line
        lines.append(line)
        before = line
    return "\n".join(lines)
