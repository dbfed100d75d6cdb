"""Judge each checkpoint that a training run saves, as soon as it is there.

    >>> Trainer(..., callbacks=[shardscope.callbacks.trainer()])
    >>> lightning.Trainer(..., callbacks=[shardscope.callbacks.lightning()])
    >>> save_state = shardscope.callbacks.accelerate(accelerator)     # in place of accelerator.save_state
    >>> shardscope.callbacks.torchtitan(checkpointer)

All take ``level``, as ``shardscope.validate`` does, and ``then(path, validation)``, which hears of each save; without it one
that is not safe is a warning of the logger ``shardscope``. What ``then`` raises ends the training. Rank 0 judges, once all ranks
have saved.
"""
from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from . import validate
from ._errors import Error

if TYPE_CHECKING:
    from . import RunValidation, Validation, types

    Then = Callable[[str, Union[Validation, RunValidation, Error]], object]

__all__ = ["accelerate", "lightning", "torchtitan", "trainer"]


def _warn(path: str, judged: Union[Validation, RunValidation, Error]) -> None:
    if isinstance(judged, Error):
        logging.getLogger("shardscope").warning("shardscope: %s does not open: %s", path, judged)
    elif judged.verdict != "safe":
        why = "; ".join(f"{finding.rule}: {finding.message}" for finding in judged.findings if finding.severity != "info")
        logging.getLogger("shardscope").warning("shardscope: %s is %s: %s", path, judged.verdict, why)


class _Judge:
    def __init__(self, level: types.Level, then: Optional[Then]) -> None:
        self.level: types.Level = level
        self.then = then or _warn

    def __call__(self, path: Any, is_first: bool = True) -> None:
        if not is_first:
            return
        judged: Union[Validation, RunValidation, Error]
        try:
            judged = validate(path, self.level)
        except Error as error:  # it does not open
            judged = error
        self.then(os.fspath(path), judged)


def trainer(level: types.Level = "files", then: Optional[Then] = None) -> Any:
    """A callback for ``transformers.Trainer``."""
    import torch.distributed
    from transformers import TrainerCallback  # type: ignore[import-not-found, unused-ignore]

    judge = _Judge(level, then)

    class Judging(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if torch.distributed.is_initialized():
                torch.distributed.barrier()  # each rank saves its random states
            judge(os.path.join(args.output_dir, f"checkpoint-{state.global_step}"), state.is_world_process_zero)

    return Judging()


def lightning(level: types.Level = "files", then: Optional[Then] = None) -> Any:
    """A callback for ``lightning.Trainer``, whatever strategy and callback save."""
    from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found, unused-ignore]

    judge = _Judge(level, then)

    class Judging(Callback):  # type: ignore[misc, unused-ignore]
        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            save = trainer.save_checkpoint

            def save_checkpoint(filepath: Any, *args: Any, **options: Any) -> None:
                save(filepath, *args, **options)
                judge(filepath, trainer.is_global_zero)

            trainer.save_checkpoint = save_checkpoint

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            trainer.__dict__.pop("save_checkpoint", None)

    return Judging()


def accelerate(accelerator: Any, level: types.Level = "files", then: Optional[Then] = None) -> Callable[..., Any]:
    """``save_state`` of an ``accelerate.Accelerator``, judged."""
    judge = _Judge(level, then)

    def save_state(*args: Any, **options: Any) -> Any:
        path = accelerator.save_state(*args, **options)
        accelerator.wait_for_everyone()
        judge(path, accelerator.is_main_process)
        return path

    return save_state


def torchtitan(checkpointer: Any, level: types.Level = "files", then: Optional[Then] = None) -> None:
    """Has a ``CheckpointManager`` of torchtitan judge what it saves; what it saves asynchronously once it is there, at the next
    save and when it is closed."""
    import torch.distributed

    judge, save, close = _Judge(level, then), checkpointer.save, checkpointer.close
    saving: list[str] = []

    def judge_saved() -> None:
        while saving:
            judge(saving.pop(0), not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0)

    def judged_save(curr_step: int, last_step: bool = False) -> bool:
        done: bool = save(curr_step, last_step)  # has waited for the save before it
        if done:
            judge_saved()
            saving.append(os.path.join(checkpointer.folder, f"step-{curr_step}"))
        if checkpointer.save_future is None:
            judge_saved()
        return done

    def judged_close() -> None:
        checkpointer.maybe_wait_for_saving()
        judge_saved()
        close()

    checkpointer.save, checkpointer.close = judged_save, judged_close
