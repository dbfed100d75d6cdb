"""Makes app/python/shardscope/_options.py, the options of the verbs as types, from the option table of the module."""
import textwrap

from shardscope import _shardscope

_EVERY = {"threads", "memory", "io", "remote_program"}  # that all verbs have
_OPENING = {name for name, _, _ in _shardscope.options("open")} - _EVERY
# The classes: the verb whose options they are, and those of them that are arguments of their own or do not count there.
_CLASSES = {
    "OpenOptions": ("open", {"format"}, "How a checkpoint is opened, beside its format."),
    "OpenedOptions": ("open", set(), "How a checkpoint is opened by functions that do that by themselves."),
    "WorkOptions": ("open", _OPENING | {"remote_program"}, "How much of this machine work may take."),
    "ReadingOptions": ("validate", _OPENING, "Of readings that several processes may share."),
    "ValidateOptions": ("validate", set(), "The same of a checkpoint that is not open yet."),
    "DiffOptions": ("diff", {"values"}, "Of ``shardscope diff``."),
    "PlanOptions": ("plan", {"dry_run"}, "Of ``shardscope plan``."),
    "ConvertOptions": ("convert", set(), "Of ``shardscope convert``."),
    "ReshardOptions": ("reshard", set(), "Of ``shardscope reshard``."),
    "AverageOptions": ("average", set(), "Of ``shardscope average``."),
}
_TAKES = {"text": "Optional[Text]", "texts": "Optional[Texts]", "yes": "bool", "number": "int", "size": "Optional[Size]"}
_HEAD = '''"""Options as keyword arguments. Made from the option table; test_types.py with SHARDSCOPE_ACCEPT=1 writes it anew."""
from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, Optional, TypedDict, Union

Text = Union[str, "os.PathLike[str]"]
Texts = Union[Text, Iterable[Text]]  # of an option that is repeatable
Size = Union[int, str]  # "512MiB"
'''


def _alias(names: tuple) -> str:
    if "safetensors" in names:
        return "ReadFormat" if "orbax" in names else "WrittenFormat"
    return f"Literal[{', '.join(repr(name) for name in names)}]".replace("'", '"')


def written() -> str:
    """The file, as it should be."""
    aliases: dict = {}
    classes = []
    for name, (verb, without, what) in _CLASSES.items():
        lines = [f'class {name}(TypedDict, total=False):', f'    """{what}"""', ""]
        for option, takes, names in _shardscope.options(verb):
            if option in without:
                continue
            type = _TAKES.get(takes) or f"Optional[{_alias(tuple(names))}]"
            if "Format" in type:
                aliases[_alias(tuple(names))] = ", ".join(f'"{name}"' for name in names)
            lines.append(f"    {option}: {type}")
        classes.append("\n".join(lines))
    formats = "\n".join(textwrap.fill(f"{alias} = Literal[{names}]", 120, subsequent_indent="    ", break_on_hyphens=False)
                        for alias, names in sorted(aliases.items()))
    return f"{_HEAD}{formats}\n\n\n" + "\n\n\n".join(classes) + "\n"
