"""Resumes with torch.distributed.checkpoint: one process takes what two ranks of FSDP2 have saved, too."""
import torch
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful

CASES = ("dcp-sync-2", "dcp-twice-1")
STEPS = "step-*"


class Application(Stateful):
    def __init__(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.ReLU(), torch.nn.Linear(24, 8))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (1 + step))
        self.step = 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer, "sched": self.scheduler.state_dict(), "step": self.step}

    def load_state_dict(self, saved):
        set_state_dict(self.model, self.optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optim"])
        self.scheduler.load_state_dict(saved["sched"])
        self.step = saved["step"]


def resume(case, step, scratch):
    application = Application()
    checkpoint.load({"app": application}, checkpoint_id=step)
    return {"model": application.model.state_dict(), "optimizer": application.optimizer.state_dict(),
            "scheduler": application.scheduler.state_dict(), "step": application.step}
