"""Resumes with Accelerate's load_state."""
import random

import numpy
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

CASES = ("accelerate-safe", "accelerate-pickle")
STEPS = "checkpoint_*"


def resume(case, step, scratch):
    AcceleratorState._reset_state(True)  # each resume is one of a new process
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(16, 24), torch.nn.ReLU(), torch.nn.Linear(24, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    accelerator.load_state(step)
    return {"model": accelerator.unwrap_model(model).state_dict(), "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(), "step": scheduler.scheduler.last_epoch,
            "rng": {"torch": torch.get_rng_state(), "numpy": numpy.random.get_state()[1], "python": random.getstate()}}
