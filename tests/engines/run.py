"""run.py ENGINE: an engine of docs/distributed.md does a conversion in parts, of which one is killed on the way, and what it publishes is what one process
writes. Exits with 77 where the engine is missing. SHARDSCOPE names the program."""
import filecmp
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARTS = 4

# In place of the program: the first one that starts is killed once its part has begun, as by the kernel where memory ends, with its last record torn; the
# others begin after that, so that it is never the whole work that is done before. With KILL_PARENT the process of the engine that started it goes with it.
VICTIM = """#!/bin/bash
cd "$VICTIM_DIRECTORY"
if mkdir hit 2>/dev/null; then
    "$SHARDSCOPE_REAL" "${@:1:$#-2}" & # without --finish auto
    journal=.out.shardscope-partial/part-*.journal
    while kill -0 $! 2>/dev/null && ! compgen -G "$journal" >/dev/null; do sleep 0.01; done
    kill -9 $! 2>/dev/null
    wait $!
    truncate -s -5 $journal
    touch killed
    [ -z "$KILL_PARENT" ] || kill -9 $PPID
    exit 137
fi
until [ -e killed ]; do sleep 0.01; done
exec "$SHARDSCOPE_REAL" "$@"
"""


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)


def program(name, package):
    return shutil.which(name) or skip("no %s (package %s)" % (name, package))


def write_source(path):
    """A safetensors file of 96 MiB, without any library: one tensor is larger than a share."""
    header, at = {}, 0
    for i, rows in enumerate([1000, 37, 12000, 1, 5000, 511, 6000, 27]):
        size = rows * 1024 * 4
        header["layers.%d.weight" % i] = {"dtype": "F32", "shape": [rows, 1024], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for row in range(at // 4096):
            file.write(struct.pack("<1024f", *range(row % 8191, row % 8191 + 1024)))


def run(command, **more):
    print("+", " ".join(command), flush=True)
    return subprocess.run(command, timeout=600, **more).returncode


def same(one, other):
    compared = filecmp.dircmp(one, other)
    names = compared.common_files
    return not (compared.left_only or compared.right_only or compared.common_dirs) and filecmp.cmpfiles(one, other, names, shallow=False)[0] == names


def openmpi(words):
    """mpirun ends all when one dies; started again, the parts that are done say so and the others continue."""
    command = [program("mpirun", "openmpi-bin"), "-n", str(PARTS), "--oversubscribe"]
    command += ["--allow-run-as-root"] if os.getuid() == 0 else []
    command += [os.environ["SHARDSCOPE"], *words, "--part", "auto", "--finish", "auto"]
    assert run(command) != 0, "mpirun did not see that a part was killed"
    return run(command)


def torchrun(words):
    """torchrun starts all again, by itself."""
    torch = os.path.join(os.path.dirname(sys.executable), "torchrun")
    return run([torch, "--nproc-per-node", str(PARTS), "--max-restarts", "1", "--no-python", os.environ["SHARDSCOPE"], *words,
                "--part", "auto", "--finish", "auto"])


def parallel(words):
    return run([program("parallel", "parallel"), "--will-cite", "--retries", "3", "-j", "2", os.environ["SHARDSCOPE"], *words, "--part", "{}/%d" % PARTS,
                "--finish", "auto", ":::", *map(str, range(PARTS))])


def shell(words):
    command = "seq 0 %d | xargs -P 2 -I{} %s %s --part {}/%d --finish auto" % (PARTS - 1, os.environ["SHARDSCOPE"], " ".join(words), PARTS)
    assert run(["sh", "-c", command]) != 0, "xargs did not see that a part was killed"
    return run(["sh", "-c", command])


def ray(words):
    """Three raylets here; the worker process of a part is killed with it, and Ray runs the part again."""
    import ray as module
    from ray.cluster_utils import Cluster

    # Ray writes the address of a cluster below RAY_TMPDIR, wherever temp_dir is, and does not make the directory.
    temporary = os.path.join(os.environ["VICTIM_DIRECTORY"], "ray")
    os.mkdir(temporary)
    os.environ.update(KILL_PARENT="1", RAY_USAGE_STATS_ENABLED="0", RAY_TMPDIR=os.environ["VICTIM_DIRECTORY"])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "temp_dir": temporary})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        os.environ["RAY_ADDRESS"] = cluster.address
        return run([sys.executable, os.path.join(TOP, "packaging/engines/ray_parts.py"), str(PARTS), *words[1:]])
    finally:
        module.shutdown()
        cluster.shutdown()


ENGINES = {f.__name__: f for f in (openmpi, torchrun, parallel, shell, ray)}


def main():
    engine = ENGINES[sys.argv[1]]
    real = os.path.abspath(os.environ["SHARDSCOPE"])
    for name in list(os.environ):  # of whatever runs this test
        if name.startswith(("SLURM_", "OMPI_", "PMI_", "SKYPILOT_")) or name in ("RANK", "WORLD_SIZE", "SHARDSCOPE_PART"):
            del os.environ[name]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        source, target, plain = (os.path.join(directory, name) for name in ("source.safetensors", "out", "plain"))
        write_source(source)
        options = ["--to", "dcp", "--mesh", "tp=2", "--shard", "*:tp=0"]
        assert run([real, "convert", source, plain, *options], stdout=subprocess.DEVNULL) == 0
        victim = os.path.join(directory, "victim")
        with open(victim, "w") as file:
            file.write(VICTIM)
        os.chmod(victim, 0o755)
        os.environ.update(SHARDSCOPE=victim, SHARDSCOPE_REAL=real, VICTIM_DIRECTORY=directory)
        code = engine(["convert", source, target, *options])
        assert code == 0, "exit code %d" % code
        assert os.path.isdir(os.path.join(directory, "hit")), "nothing was killed"
        assert same(target, plain), "what the parts wrote is not what one process writes"
        assert not os.path.exists(os.path.join(directory, ".out.shardscope-partial")), "the staging directory is left"
    print("as one process")


if __name__ == "__main__":
    main()
