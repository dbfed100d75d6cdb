"""Writes what was measured into docs/performance.md, and the README's table, which is made of that page."""
import decimal
import os
import platform
import re

from measure import TOP, gib, mib

PERFORMANCE, README = (os.path.join(TOP, name) for name in ("docs/performance.md", "README.md"))
# The README's rows: its words, and how the row of the first table of docs/performance.md begins.
SHOWN = (
    ("DCP to safetensors, {size} <sup>1</sup>", "DCP (8 FSDP x 2 TP) to safetensors"),
    ("ZeRO-3 masters to safetensors <sup>2</sup>", "ZeRO-3, 8 ranks"),
    ("Megatron-Core to safetensors, {size} <sup>1</sup>", "Megatron-Core TP2 x PP2 x DP2"),
)


def machine():
    import safetensors
    import torch
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        cpu = next((l.split(":", 1)[1].strip() for l in f if l.startswith("model name")), "?")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return "Machine: %s, %d cores, %s memory, kernel %s. Peers: torch %s, safetensors %s, Python %s.\n" % (
        cpu, os.cpu_count(), gib(memory), platform.release(), torch.__version__, safetensors.__version__, platform.python_version())


def table(found):
    text = machine() + "\n| what | Shardscope | peer | ratio | target |\n|---|---|---|---|---|\n"
    notes = []
    for what, ours, peer, ratio, target, command in found:
        if command and command not in notes:
            notes.append(command)
        mark = " <sup>%d</sup>" % (notes.index(command) + 1) if command else ""
        text += "| %s |\n" % " | ".join(cell.strip() for cell in (what + mark, ours, peer, ratio, target))
    return text + "".join("\n<sup>%d</sup> `shardscope %s`" % note for note in enumerate(notes, 1)) + ("\n" if notes else "")


def replaced(text, name, block):
    """The text with what stands between the marks of a part; a new part comes last."""
    begin, end = marks(name)
    if begin not in text:
        text += "\n## %s\n\n%s%s" % (name.capitalize(), begin, end)
    before, rest = text.split(begin)
    return before + begin + block + end + rest.split(end)[1]


def between(text, name):
    begin, end = marks(name)
    return text.split(begin)[1].split(end)[0]


def marks(name):
    return ["<!-- tests/bench/run %s: %s -->\n" % (name, mark) for mark in ("begin", "end")]


def summary(block, headlines):
    """The first table with the rows that were measured; a row is known by its words up to the first comma or mark."""
    def begins(line):
        return re.split(",| <sup>", line.removeprefix("| "))[0]

    def taken(found):
        return ", ".join(["%.2f s" % found[0], *((gib(n) if n >= 2**30 else mib(n)) for n in found[1:])])

    lines = block.splitlines()
    for what, ours, plain, peer, theirs, target in headlines:
        ratio = "%.1fx" % (theirs[0] / ours[0]) if peer else "%.2f" % (ours[0] / theirs[0])
        line = "| %s |" % " | ".join((what, taken(ours), "" if plain is None else "%.2f s" % plain, (peer + " " + taken(theirs)).strip(), ratio, target))
        places = [i for i, old in enumerate(lines) if begins(old) == begins(line)]
        if places:
            lines[places[0]] = line
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def readme_table(performance):
    """The README's table: figures of the first table of docs/performance.md, and of its values, with one decimal."""
    def rounded(cell):
        """The times and sizes in a cell, without its words."""
        found = re.findall(r"(?<![\w.])([\d,.]+) (s|MiB|GiB)\b", cell)
        one = [(decimal.Decimal(n.replace(",", "")), unit) for n, unit in found]
        return ", ".join("%s %s" % (n if unit == "MiB" else n.quantize(decimal.Decimal("0.1"), decimal.ROUND_HALF_UP), unit) for n, unit in one)

    def cells(block, begins):
        line = next(line for line in between(performance, block).splitlines() if line.startswith("| " + begins))
        return [cell.strip() for cell in line.strip("| ").split(" | ")]

    text = "| two cores | verified | `--verify none` | framework's tool |\n|---|---|---|---|\n"
    for words, begins in SHOWN:
        what, verified, plain, peer = cells("summary", begins)[:4]
        size = re.search(r"([\d.]+) GiB", what).group(1)
        size = "%g GiB" % float(decimal.Decimal(size).quantize(decimal.Decimal("0.1"), decimal.ROUND_HALF_UP))
        text += "| %s |\n" % " | ".join((words.format(size=size), rounded(verified), rounded(plain), rounded(peer)))
    what, ours, peer = cells("values", "validate --level values of")[:3]
    return text + "| every value of %s <sup>3</sup> | %s | | %s |\n" % (re.search(r"[\d.]+ GiB", what).group(0), rounded(ours), rounded(peer))


def write(measured, headlines):
    """Replaces the tables of the measured parts; the words around them stay."""
    with open(PERFORMANCE, encoding="utf-8") as f:
        text = f.read()
    for name, found in measured.items():
        text = replaced(text, name, table(found))
    text = replaced(text, "summary", summary(between(text, "summary"), headlines))
    with open(PERFORMANCE, "w", encoding="utf-8") as f:
        f.write(text)
    with open(README, encoding="utf-8") as f:
        readme = replaced(f.read(), "summary", readme_table(text))
    with open(README, "w", encoding="utf-8") as f:
        f.write(readme)
