"""The blocks of the documents, for the scripts that run them; test_documents.py says what the comments before a block mean."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Block:
    def __init__(self, page, line, language, text, note):
        self.page, self.line, self.language, self.text = page, line, language, text
        self.not_run = re.search(r"<!-- not run: (.+?) -->", note)
        self.run_by = re.search(r"<!-- run by (\S+) -->", note)
        self.needs_slurm = "<!-- needs Slurm -->" in note
        self.example = "<!-- example output -->" in note
        self.exit = int(match.group(1)) if (match := re.search(r"<!-- exit (\d+) -->", note)) else 0

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page):
    blocks, before, start, language, lines = [], "", None, "", []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if start is None:
            if match := re.match(r"^\s*```(\w*)\s*$", line):
                start, language, lines = number, match.group(1), []
            elif line.strip():
                before = line
        elif line.strip() == "```":
            blocks.append(Block(page, start, language, "\n".join(lines) + "\n", before))
            start, before = None, ""
        else:
            lines.append(line)
    assert start is None, f"{page}:{start}: the block does not end"
    return blocks


def block_with(page, words):
    """The text of the block of a page that has these words."""
    found = [block.text for block in blocks_of(ROOT / page) if words in block.text]
    assert len(found) == 1, f"{page} has {len(found)} blocks with {words!r}"
    return found[0]
