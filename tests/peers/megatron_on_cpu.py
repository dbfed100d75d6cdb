"""What megatron-core 0.16 needs to save and load without a GPU and with torch 2.15; importing this sees to it."""
import multiprocessing

import torch
from megatron.core.dist_checkpointing.strategies import filesystem_async

_queues = []
_empty = torch.empty


def _forked_queue():
    """The queue of the writers of a save: from a forked process instead of a spawned one, which would run the program again."""
    if not _queues:
        _queues.append(multiprocessing.get_context("fork").Manager())
    return _queues[0].Queue()


def leave():
    """Before a rank that has saved ends without cleaning up."""
    for queue in _queues:
        queue.shutdown()


filesystem_async._get_write_results_queue = _forked_queue
filesystem_async._process_memory = lambda: 0  # psutil is not in the environment
# Properties of tensors have strides since torch 2.15, which core 0.16 hands on to torch.empty, whoever saved them.
torch.empty = lambda *words, strides=None, **more: _empty(*words, **more)
