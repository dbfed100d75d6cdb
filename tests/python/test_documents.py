"""Every block of commands and of Python in the documents runs, on checkpoints that stand where the pages say.

A block that cannot run here has a comment before it, which a reader of the page does not see: `<!-- not run: REASON -->`. Another that
ends with an exit code of its own: `<!-- exit 1 -->`. `<!-- run by SCRIPT -->` names the script here, or in tests/peers, that runs it in another environment. `<!-- needs Slurm -->`: where there is one. What `<!-- example output -->` stands over is not compared. Lines of a `console` block that begin with `$ ` are commands, the others what they
print: `...` stands for anything, and numbers with their units may be others.
"""
import contextlib
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys

import documents_worlds
import pytest
import shardscope
import torch
from pages import ROOT, blocks_of

sys.path.append(str(ROOT / "tests/bench"))
import documents

PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")})
# Directories that the pages name from the root of the file system.
PLACES = ("runs", "models", "checkpoints", "data", "scratch", "local", "shared")
RUNNABLE = ("sh", "console", "python", "")
# What stands for the user's own commands: a prompt of a host, or of a shell.
PROMPT = re.compile(r"^(?:[a-z]+)?\$\s+")


def is_runnable(block):
    if block.language not in RUNNABLE or block.not_run or block.run_by:
        return False
    return block.language != "" or bool(re.search(r"^(\S*\$\s+)?(\S+=\S+ )?(shardscope|[A-Z]+=\$\()", block.text, re.MULTILINE))


def pages_with_blocks():
    for page in PAGES:
        if any(is_runnable(block) for block in blocks_of(page)):
            yield pytest.param(page, id=str(page.relative_to(ROOT)))


def placed(text, root):
    """The text with the pages' directories below `root`."""
    names = "|".join(PLACES)
    text = re.sub(rf"(ssh://[\w@:.]+)/({names})\b", rf"\1{root}/\2", text)
    return re.sub(rf"(?<![\w./~>-])/({names})(?=[/\s\"'):]|$)", rf"{root}/\1", text, flags=re.MULTILINE)


def commands_of(block):
    """The commands, each with the lines that it is to print; None where the block does not say."""
    if block.language == "console":
        pairs = []
        for line in block.text.splitlines():
            if line.startswith("$ "):
                pairs.append((line[2:], []))
            else:
                pairs[-1][1].append(line)
        return [(command, None) for command, _ in pairs] if block.example else pairs
    # A shell takes the block as a whole, as a user who pastes it.
    return [("".join(PROMPT.sub("", line) + "\n" for line in block.text.splitlines()), None)]


def as_pattern(line):
    number = r"\d(?:[\d.,:]*\d)?(?: (?:[KMGT]i)?B)?"
    parts = re.split(rf"(\.\.\.|{number})", line.rstrip())
    return re.compile("".join(".*" if p == "..." else number if re.match(r"\d", p) else re.escape(p) for p in parts) + r"\s*")


def missing_line(printed, wanted):
    """The first of `wanted` that does not come in its order."""
    rest = iter(printed.splitlines())
    for line in wanted:
        if line.strip() in ("", "..."):
            continue
        pattern = as_pattern(line)
        if not any(pattern.fullmatch(candidate.rstrip()) for candidate in rest):
            return line
    return None


class Shell:
    """One shell for all blocks of a page: variables of an earlier block stand in later ones."""

    def __init__(self, world):
        self.world, self.state = world, world / ".state"
        self.state.write_text("")

    def run(self, command, check):
        strict = "set -e -o pipefail\n" if check else ""
        script = (f". {shlex.quote(str(self.state))}\n{strict}{placed(command, self.world)}\n"
                  f"{{ code=$?; declare -p | grep -E '^declare -- [A-Z]+=' > {shlex.quote(str(self.state))}; exit $code; }}\n")
        environment = {**os.environ, "PATH": f"{self.world}/bin:{os.environ['PATH']}", "SHARDSCOPE_SSH": f"{self.world}/bin/ssh",
                       "HOME": f"{self.world}/home", "XDG_STATE_HOME": f"{self.world}/state", "XDG_CONFIG_HOME": f"{self.world}/config", "COLUMNS": "200",
                       "SHARDSCOPE_TORCH_LIBRARY": str(pathlib.Path(torch.__file__).parent / "lib"), "USER": "user", "QT_QPA_PLATFORM": "offscreen"}
        if "SLURM_CONF" not in environment:
            environment["SLURM_JOB_ID"] = "1"  # as in a script of a batch job
        return subprocess.run(["bash", "-c", script], cwd=self.world / "here", env=environment, capture_output=True, text=True, timeout=600)


def run_shell(shell, block):
    for command, wanted in commands_of(block):
        done = shell.run(command, check=wanted is None)
        said = f"{block}\n{command}\nexit code {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
        if wanted is None:
            if done.returncode != block.exit:
                pytest.fail(said, pytrace=False)
        else:
            line = missing_line(done.stderr + done.stdout, [placed(line, shell.world) for line in wanted])
            if line is not None:
                pytest.fail(f"{said}\nis not printed: {line}", pytrace=False)


def run_python(names, block, world):
    text = placed(block.text, world).replace('device="cuda"', 'device="cpu"')
    if "def test_" in text:
        file = world / "here/test_block.py"
        file.write_text(text)
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "shardscope.pytest_plugin", "-p", "no:cacheprovider", str(file)],
                              cwd=file.parent, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        return
    with contextlib.chdir(world / "here"), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, str(block), "exec"), names)  # the page's own text


@pytest.mark.parametrize("page", list(pages_with_blocks()))
def test_blocks(page, tmp_path):
    name = str(page.relative_to(ROOT))
    assert name in documents_worlds.WORLDS, f"{name} has blocks that run: say in documents_worlds.py what they find"
    names = documents_worlds.make(name, tmp_path)
    shell, slurm, passed = Shell(tmp_path), names.pop("slurm", None), False
    try:
        for block in blocks_of(page):
            if not is_runnable(block) or (block.needs_slurm and not slurm.there):
                continue
            if block.language == "python":
                try:
                    run_python(names, block, tmp_path)
                except Exception as error:
                    pytest.fail(f"{block}: {type(error).__name__}: {error}\n{block.text}", pytrace=False)
            else:
                run_shell(shell, block)
        passed = True
    finally:
        if slurm:
            slurm.end(passed)


def program_text():
    """What the program can say: the string literals of its sources, those that follow each other joined."""
    texts = []
    for room in ("core", "app", "ui"):
        for source in (ROOT / room).rglob("*.cpp"):
            text = re.sub(r'"\s*\n\s*"', "", source.read_text(encoding="utf-8"))
            texts += re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)
    return "\n".join(texts)


def test_quoted_messages():
    """What the page on trouble quotes is said by the program."""
    page, said = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8"), program_text()
    quoted = re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", page)
    assert len(quoted) > 10
    for message in quoted:
        # Numbers, names and what is left out come from the checkpoint.
        parts = [part.strip() for part in re.split(r"\d+|\b[NM]\b|…|'\w+'|\w+=|--\w+|[().:]", message)]
        parts = [part for part in parts if part]
        assert parts and all(part in said for part in parts), f"the program does not say *{message}*: {[p for p in parts if p not in said]}"


def test_recipes_of_the_page():
    """The page on recipes lists those that are built in, and no other."""
    text = (ROOT / "docs/recipes.md").read_text(encoding="utf-8").split("## Built-in recipes")[1]
    listed = set()
    for recipes, families in re.findall(r"^\| (`.+?) \| (.+) \|$", text, re.MULTILINE):
        for recipe in re.findall(r"`([^`]+)`", recipes):
            listed |= {recipe.replace("FAMILY", family) for family in re.findall(r"`([^`]+)`", families) or [""]}
    assert listed == {recipe["name"] for recipe in shardscope.recipes()["recipes"]}


def test_most_blocks():
    """What does not run says why."""
    runs = [b for page in PAGES for b in blocks_of(page) if is_runnable(b)]
    stays = [b for page in PAGES for b in blocks_of(page) if b.not_run]
    elsewhere = [b for page in PAGES for b in blocks_of(page) if b.run_by]
    for block in elsewhere:
        places = [ROOT / "tests" / room / block.run_by.group(1) for room in ("python", "peers")]
        script = next(place for place in places if place.exists()).read_text(encoding="utf-8")
        assert f'block_with("{block.page.relative_to(ROOT)}"' in script, f"{block} does not run in {block.run_by.group(1)}"
    print(f"{len(runs)} blocks run here, {len(elsewhere)} in other environments, {len(stays)} do not:", *(f"{b}: {b.not_run.group(1)}" for b in stays), sep="\n  ", file=sys.stderr)
    assert len(stays) * 20 < len(runs) + len(elsewhere)


def test_numbers_of_the_readme():
    """The README's table is the one that is made of docs/performance.md."""
    performance, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/performance.md", "README.md"))
    assert documents.between(readme, "summary") == documents.readme_table(performance)


def test_measured_rows_are_written():
    """A run replaces the rows that it measured, in both tables; the others stay."""
    performance = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    before = documents.between(performance, "summary")
    what = "ZeRO-3, 8 ranks, masters of 2 GiB of state to safetensors <sup>2</sup>"
    after = documents.summary(before, [(what, (1.25, 50 << 20), 0.55, "`zero_to_fp32`, not synced,", (10, 3 << 30), ">= 5x")])
    changed = [(old, new) for old, new in zip(before.splitlines(), after.splitlines(), strict=True) if old != new]
    assert [new for _, new in changed] == [f"| {what} | 1.25 s, 50 MiB | 0.55 s | `zero_to_fp32`, not synced, 10.00 s, 3.00 GiB | 8.0x | >= 5x |"]
    shown = documents.readme_table(documents.replaced(performance, "summary", after))
    assert "| ZeRO-3 masters to safetensors <sup>2</sup> | 1.3 s, 50 MiB | 0.6 s | 10.0 s, 3.0 GiB |\n" in shown
