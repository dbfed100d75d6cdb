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
# Since torch 2.15 the properties of a tensor in the metadata include its strides. Core 0.16 passes all properties to
# torch.empty, which does not take strides. This happens with every checkpoint, Megatron's own included.
torch.empty = lambda *words, strides=None, **more: _empty(*words, **more)
