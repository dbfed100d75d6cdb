"""Gloo ranks on this machine, forked from a process that has imported the framework: the imports take longer than all else that
a rank does."""
import multiprocessing
import os
import socket
import sys
import tempfile
import time
import traceback


def _run_rank(work, environment, said):
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    os.environ.update(environment)
    try:
        work()
        failed = 0
    except BaseException:
        traceback.print_exc()
        failed = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(failed)


def _wait(processes, seconds):
    end = time.time() + seconds
    while any(p.is_alive() for p in processes) and time.time() < end:
        if any(p.exitcode not in (None, 0) for p in processes):
            time.sleep(0.5)  # the others may have a word to say as well
            break
        time.sleep(0.02)
    for process in processes:
        if process.is_alive():
            process.kill()
        process.join()


def forked_ranks(count, work, seconds):
    """Calls work() in `count` ranks, which torch.distributed finds in the environment; AssertionError with what a rank said that
    failed. When one fails, or after so many seconds, all of them end."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    sys.stdout.flush()
    processes, said = [], [tempfile.TemporaryFile() for _ in range(count)]
    for rank in range(count):
        environment = dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        process = multiprocessing.get_context("fork").Process(target=_run_rank, args=(work, environment, said[rank]))
        process.start()
        processes.append(process)
    _wait(processes, seconds)
    texts = []
    for file in said:
        file.seek(0)
        texts.append(file.read().decode(errors="replace"))
    for process, text in zip(processes, texts):
        if process.exitcode not in (0, -9):
            raise AssertionError("a rank failed:\n" + text[-1500:])
    if any(p.exitcode for p in processes):
        raise AssertionError("the ranks did not end:\n" + texts[0][-1500:])
