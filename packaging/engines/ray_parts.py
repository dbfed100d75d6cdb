"""A conversion in parts on a Ray cluster: python ray_parts.py 8 SRC DST --to safetensors

Ray starts the parts where it has room and runs one again whose worker dies; a part that is done says so, the others continue. Source and destination are
on storage that all nodes see, and shardscope is on their PATH (or named by SHARDSCOPE)."""
import ctypes
import os
import signal
import subprocess
import sys

import ray


def end_with_worker():
    """What a worker started must not outlive it: Ray runs its part again, and two processes cannot do one part."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@ray.remote(max_retries=3, retry_exceptions=True)
def part(index, count, program, words):
    done = subprocess.run([program, "convert", *words, "--part", "%d/%d" % (index, count), "--finish", "auto"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, preexec_fn=end_with_worker)
    if done.returncode != 0:
        raise RuntimeError(done.stdout)
    return done.stdout


def main():
    count, words = int(sys.argv[1]), sys.argv[2:]
    ray.init(address=os.environ.get("RAY_ADDRESS"))
    program = os.environ.get("SHARDSCOPE", "shardscope")
    for text in ray.get([part.remote(index, count, program, words) for index in range(count)]):
        print(text, end="")


if __name__ == "__main__":
    main()
