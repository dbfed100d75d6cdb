"""shardscope.callbacks with the frameworks themselves: judging_saves.py trainer|lightning|accelerate|torchtitan."""
import contextlib
import logging
import os
import pathlib
import sys
import tempfile
import types
import warnings

import torch

import shardscope
from pages import block_with

warnings.filterwarnings("ignore")
heard = []  # (path, verdict or code), of one run
said = []  # by the logger


class Said(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())


def hear(path, judged):
    heard.append((os.path.basename(path), judged.code if isinstance(judged, shardscope.Error) else judged.verdict))


class Stopped(Exception):
    pass


def stop(path, judged):
    raise Stopped(path)


@contextlib.contextmanager
def damaging(module, name, places):
    """Saves are cut short: what `module.name` writes, at the places that it is given, loses its last bytes."""
    write = getattr(module, name)

    def cut(*args, **options):
        done = write(*args, **options)
        for place in places(*args, **options):
            if os.path.isfile(place):
                os.truncate(place, os.path.getsize(place) * 2 // 3)
        return done

    setattr(module, name, cut)
    try:
        yield
    finally:
        setattr(module, name, write)


def as_on_the_page(name, **names):
    """Runs the page's own line for a framework; what it names are the objects of a real run."""
    line = next(line for line in block_with("docs/python.md", "shardscope.callbacks.trainer").splitlines() if f"callbacks.{name}(" in line)
    names["shardscope"] = shardscope
    exec(line, names)
    return names


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.lin = torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64)

    def forward(self, input_ids, labels=None):
        logits = self.lin(self.emb(input_ids))
        return {"loss": torch.nn.functional.cross_entropy(logits.view(-1, 64), labels.view(-1)), "logits": logits}


def trainer(place, page=False, **how):
    from transformers import Trainer, TrainingArguments

    tokens = torch.arange(8)
    rows = [{"input_ids": tokens, "labels": tokens}] * 16
    arguments = TrainingArguments(output_dir=place, max_steps=4, save_steps=2, per_device_train_batch_size=2, use_cpu=True, report_to=[],
                                  disable_tqdm=True)

    def train(*_, callbacks):
        Trainer(model=Model(), args=arguments, train_dataset=rows, callbacks=callbacks).train()

    if page:
        as_on_the_page("trainer", Trainer=train)
    else:
        train(callbacks=[shardscope.callbacks.trainer(**how)])
    return ["checkpoint-2", "checkpoint-4"]


def lightning(place, page=False, **how):
    import lightning as framework
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(framework.LightningModule):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(64, 64)

        def training_step(self, batch, index):
            return self.lin(batch).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    saves = ModelCheckpoint(dirpath=place, filename="{step}", every_n_train_steps=2, save_top_k=-1)

    def train(*_, callbacks):
        framework.Trainer(accelerator="cpu", devices=1, max_steps=4, logger=False, enable_progress_bar=False, enable_model_summary=False,
                          callbacks=[saves, *callbacks], default_root_dir=place).fit(
                              Module(), torch.utils.data.DataLoader(torch.ones(16, 64), batch_size=2))

    if page:
        as_on_the_page("lightning", lightning=types.SimpleNamespace(Trainer=train))
    else:
        train(callbacks=[shardscope.callbacks.lightning(**how)])
    return ["step=2.ckpt", "step=4.ckpt"]


def accelerate(place, page=False, **how):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = Model()
    model, _ = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    save_state = as_on_the_page("accelerate", accelerator=accelerator)["save_state"] if page else shardscope.callbacks.accelerate(accelerator, **how)
    for step in (2, 4):
        assert os.fspath(save_state(os.path.join(place, f"checkpoint_{step}"))) == os.path.join(place, f"checkpoint_{step}")
    return ["checkpoint_2", "checkpoint_4"]


def titan(place, mode, how):
    from torchtitan.components.checkpoint import CheckpointManager

    class Optimizers(torch.optim.AdamW):  # of one part, as a container saves them
        pass

    model = Model()
    config = CheckpointManager.Config(enable=True, interval=2, async_mode=mode, keep_latest_k=0, last_save_model_only=False)
    manager = CheckpointManager(config, dataloader=None, model_parts=[model], optimizers=Optimizers(model.parameters()), lr_schedulers=None,
                                states={}, sd_adapter=None, base_folder=place)
    manager.states = {name: state for name, state in manager.states.items() if state is not None}
    if how.pop("page", False):
        as_on_the_page("torchtitan", checkpointer=manager)
    else:
        shardscope.callbacks.torchtitan(manager, **how)
    for step in (1, 2, 3, 4):
        manager.save(step)
    manager.close()
    return ["step-2", "step-4"]


def torchtitan(place, **how):
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    if how.get("then") is stop:  # what is being saved then would outlive the directory
        return titan(place, "disabled", how)
    return [*titan(os.path.join(place, "async"), "async", dict(how)), *titan(place, "disabled", dict(how))]


FRAMEWORKS = {"trainer": trainer, "lightning": lightning, "accelerate": accelerate, "torchtitan": torchtitan}


def damaged_write(name):
    """What cuts the files that the framework writes."""
    if name == "torchtitan":
        import torch.distributed.checkpoint as dcp

        writer = dcp.filesystem.FileSystemWriter
        return damaging(writer, "finish", lambda self, *_, **__: sorted(pathlib.Path(self.path).glob("*.distcp")))
    if name == "lightning":
        from lightning.fabric.plugins.io import torch_io

        return damaging(torch_io, "_atomic_save", lambda checkpoint, path, *_, **__: [path])
    return damaging(torch, "save", lambda value, place, *_, **__: [place] if isinstance(place, (str, os.PathLike)) else [])


def main(name):
    run = FRAMEWORKS[name]
    logging.getLogger("shardscope").addHandler(Said())
    logging.getLogger("shardscope").propagate = False
    for level in ("files", "values"):
        heard.clear()
        with tempfile.TemporaryDirectory() as place:
            saved = run(place, level=level, then=hear)
        assert heard == [(step, "safe") for step in saved], heard
    heard.clear()
    with tempfile.TemporaryDirectory() as place, damaged_write(name):
        saved = run(place, then=hear)
        assert [step for step, _ in heard] == saved and all(verdict not in ("safe", "care") for _, verdict in heard), heard
        assert not said
    with tempfile.TemporaryDirectory() as place, damaged_write(name):
        run(place, page=True)
        assert len(said) == len(saved) and all(step in text for step, text in zip(saved, said)), said
    with tempfile.TemporaryDirectory() as place:
        try:
            run(place, then=stop)
        except Stopped as error:
            assert saved[0] in str(error), error
        else:
            raise AssertionError("what `then` raised was lost")
    print(f"{name}: {len(saved)} saves judged, whole and cut short")


main(sys.argv[1])
