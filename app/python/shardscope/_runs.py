"""Runs: directories with the checkpoints of several steps."""
from __future__ import annotations

import os

from . import _shardscope
from ._checkpoint import Checkpoint
from ._checkpoint import open as _open
from ._documents import parsed
from ._validation import Judged
from ._words import words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Optional, Union

    from typing_extensions import Unpack

    from . import _options, types
    from ._words import Progress


class Step:
    """A step of a run: ``name``, ``step`` (its number, or None), ``path``, ``verdict`` (None where it was not judged),
    ``level`` and ``reason`` of the verdict, ``format``; ``document`` is all of it, an entry of ``steps`` in shardscope.run/1."""

    def __init__(self, run: "Run", document: types.StepDocument) -> None:
        self._run, self.document = run, document
        self.name: str = document["name"]
        self.step: Optional[int] = document["step"]
        self.path: str = document["path"]
        self.format: Optional[str] = document["format"]
        self.verdict: Optional[types.Verdict] = document["verdict"]
        self.level: Optional[types.Level] = document["level"]
        self.reason: Optional[str] = document["reason"]

    def open(self) -> Checkpoint:
        """The checkpoint, opened as the run was."""
        return _open(self.path, **self._run.options)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<shardscope.Step {self.name!r} {self.verdict or 'not judged'}>"


class RunValidation(Judged):
    """The outcome of validating a run: the worst ``verdict``, ``level``, ``findings`` with their ``step``, ``steps`` with a
    verdict each, newest first, and ``newest_whole``, the step to resume from (None: none). ``document`` is all of it as
    shardscope.run/1. True where no step is unsafe."""

    document: types.JudgedRun

    def __init__(self, run: "Run", text: str) -> None:
        super().__init__(text)
        self.steps = [Step(run, step) for step in self.document["steps"]]
        self.newest_whole = _named(self.steps, self.document["newest_whole"])


def _named(steps: list[Step], name: Optional[str]) -> Optional[Step]:
    return next((step for step in steps if step.name == name), None)


class Run:
    """The steps of a run, newest first; made by ``shardscope.run``. ``document`` is shardscope.run/1 as ``shardscope info``
    says it: with the verdicts that are known from earlier validations."""

    def __init__(self, path: Union[str, os.PathLike[str]], options: dict[str, Any]) -> None:
        self.path, self.options = os.fspath(path), options
        self.document: types.RunDocument = parsed(_shardscope.run_info(words_of(options), self.path))
        self.steps = [Step(self, step) for step in self.document["steps"]]

    @property
    def tracked(self) -> Optional[Step]:
        """The step that the run's own tracker names (``latest_checkpointed_iteration.txt``, ``latest``); None: there is none."""
        tracker = self.document["tracker"]
        return _named(self.steps, tracker["names"]) if tracker else None

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __getitem__(self, at: int) -> Step:
        return self.steps[at]

    def validate(self, level: types.Level = "files", expect: Union[str, os.PathLike[str], None] = None, examples: int = 100,
                 progress: Optional[Progress] = None, **options: Unpack[_options.OpenedOptions]) -> RunValidation:
        """Judges all steps, newest first; what did not change since it was judged is not read again. Arguments: as of
        ``Checkpoint.validate``, for one process."""
        words = words_of({**self.options, **options})
        return RunValidation(self, _shardscope.validate_run(words, self.path, level, "" if expect is None else os.fspath(expect),
                                                            examples, progress))

    def latest(self, good: bool = True, level: types.Level = "files", progress: Optional[Progress] = None,
               **options: Unpack[_options.OpenedOptions]) -> types.Latest:
        """The newest step, and why newer ones were passed over (shardscope.latest/1); see ``shardscope.latest``."""
        words = words_of({**self.options, **options})
        return parsed(_shardscope.latest(words, self.path, level, good, progress))

    def ready(self, level: types.Level = "files", progress: Optional[Progress] = None,
              **options: Unpack[_options.OpenedOptions]) -> types.Ready:
        """The resume card of the newest step that can be resumed from (shardscope.ready/1), with newer ones in ``passed``."""
        return parsed(_shardscope.ready_run(words_of({**self.options, **options}), self.path, level, progress))

    def stats(self, by: types.ValuesBy = "module", progress: Optional[Progress] = None,
              **options: Unpack[_options.OpenedOptions]) -> types.Stats:
        """Norms, zeros and NaN of all steps by module, layer or tensor (shardscope.stats/1), with what is marked. Values that were
        read before are not read again."""
        return parsed(_shardscope.stats(words_of({**self.options, **options}), self.path, by, progress))

    def __repr__(self) -> str:
        return f"<shardscope.Run {self.path!r}, {len(self)} steps>"


def run(path: Union[str, os.PathLike[str]], **options: Unpack[_options.OpenedOptions]) -> Run:
    """The run in this directory, whose steps are not read yet. options: as of ``shardscope.open``, for its steps. Raises
    Error."""
    return Run(path, dict(options))


def latest(path: Union[str, os.PathLike[str]], good: bool = True, level: types.Level = "files", progress: Optional[Progress] = None,
           **options: Unpack[_options.OpenedOptions]) -> Optional[str]:
    """Path of the step of a run to resume from: of the newest that is whole as far as ``level`` looks; with ``good=False`` of
    the one that the run's tracker names, else of the newest. None where the directory holds none.

    A training script resumes from it: ``trainer.train(resume_from_checkpoint=shardscope.latest("/runs/7"))``.
    """
    found: types.Latest = parsed(_shardscope.latest(words_of(options), os.fspath(path), level, good, progress))
    for step in found["skipped"]:
        import logging

        logging.getLogger("shardscope").warning("shardscope: %s is not whole: %s", step["name"], step["why"])
    return found["path"]
