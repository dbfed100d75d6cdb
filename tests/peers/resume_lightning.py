"""Resumes with the Trainer of Lightning, up to the start of training."""
import logging
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import Callback

CASES = ("lightning-last",)
STEPS = "*.ckpt"

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.ReLU(), torch.nn.Linear(24, 8))

    def training_step(self, batch, index):
        return self.l(batch).pow(2).mean()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Resumed(Exception):
    pass


class Look(Callback):
    def on_train_start(self, trainer, model):
        self.seen = {"model": model.state_dict(), "optimizer": trainer.optimizers[0].state_dict(),
                     "scheduler": trainer.lr_scheduler_configs[0].scheduler.state_dict(), "step": trainer.global_step}
        raise Resumed


def resume(case, step, scratch):
    look = Look()
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=40, logger=False, callbacks=[look], enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, default_root_dir=scratch)
    samples = torch.utils.data.DataLoader(torch.ones(256, 16), batch_size=4)
    try:
        trainer.fit(Model(), samples, ckpt_path=step, weights_only=False)
    except Resumed:
        return look.seen
    raise RuntimeError("the training did not start")
