"""Resumes with the Trainer of transformers, up to the first step after the checkpoint."""
import random

import numpy
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

STEPS = "checkpoint-*"
WORDS = 60  # of the vocabulary

logging.set_verbosity_error()


def gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=8, n_embd=16, n_layer=1, n_head=2))


class Plain(torch.nn.Module):
    """No PreTrainedModel, so that Trainer saves the weights alone."""

    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(WORDS, 16)
        self.lin = torch.nn.Linear(16, WORDS)

    def forward(self, input_ids, labels=None):
        logits = self.lin(self.emb(input_ids))
        return {"loss": torch.nn.functional.cross_entropy(logits.view(-1, WORDS), labels.view(-1)), "logits": logits}


CASES = {"trainer-plain": gpt2, "trainer-bin": Plain}


class Texts(torch.utils.data.Dataset):
    """As many as there were; a resumed epoch goes on where the saved one was."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = torch.arange(index, index + 8) % WORDS
        return {"input_ids": tokens, "labels": tokens.clone()}


class Resumed(Exception):
    pass


class Look(TrainerCallback):
    def on_step_begin(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **others):
        self.seen = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": lr_scheduler.state_dict(),
                     "step": state.global_step, "epoch": state.epoch, "log": state.log_history,
                     "rng": {"torch": torch.get_rng_state(), "numpy": numpy.random.get_state()[1], "python": random.getstate()}}
        raise Resumed


def resume(case, step, scratch):
    look = Look()
    how = TrainingArguments(output_dir=scratch, max_steps=40, save_steps=5, logging_steps=5, per_device_train_batch_size=4, seed=3, use_cpu=True,
                            report_to=[], disable_tqdm=True)
    try:
        Trainer(model=CASES[case](), args=how, train_dataset=Texts(), callbacks=[look]).train(resume_from_checkpoint=step)
    except Resumed:
        return look.seen
    raise RuntimeError("the training ended without a step")
