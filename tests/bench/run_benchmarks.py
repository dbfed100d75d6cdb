"""Measures Shardscope against named peers in one run; prints the tables and writes them into docs/performance.md and README.md. See tests/bench/run."""
import argparse
import os
import shutil

import bench_conversion
import bench_diff
import bench_frameworks
import bench_metadata
import bench_module
import bench_places
import bench_processes
import bench_scale
import bench_values
import documents
import measure

# Each has a table of its own in docs/performance.md. "scale" needs an hour, and is measured when it is named.
PARTS = {
    "conversion": bench_conversion.bench_conversion,
    "deepspeed": bench_frameworks.bench_deepspeed,
    "megatron": bench_frameworks.bench_megatron,
    "ranks": bench_frameworks.bench_ranks,
    "orbax": lambda work, _: bench_frameworks.bench_orbax(work, 1),
    "paddle": lambda work, _: bench_conversion.bench_paddle(work, 2),
    "flat": lambda work, _: bench_conversion.bench_flat(work, 2),
    "merge": bench_conversion.bench_merge,
    "memory": lambda work, _: bench_conversion.bench_memory(work, [(1, "many"), (8, "many"), (4, "one")]),
    "average": lambda work, _: bench_conversion.bench_average(work, 1),
    "values": bench_values.bench_values,
    "diff": lambda work, _: bench_diff.run(work, 1.4),
    "metadata": lambda work, _: bench_metadata.bench_metadata(work),
    "paddle-metadata": lambda work, _: bench_metadata.bench_paddle_metadata(work),
    "coverage": lambda *_: bench_metadata.bench_coverage(),
    "group": lambda work, _: bench_processes.bench_group(work, 1),
    "parts": bench_processes.bench_parts,
    "python": lambda work, _: bench_module.bench_python(work),
    "gpu": lambda work, _: bench_module.bench_gpu(work),
    "places": lambda work, size: bench_places.run(work, min(size, 2)),
    "scale": lambda work, _: bench_scale.run(work),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=float, default=4.0, help="GiB of the conversion")
    parser.add_argument("--work", default=os.path.join(measure.TOP, "build/bench-data"))
    parser.add_argument("--only", help="names of PARTS, separated by commas")
    parser.add_argument("--write", action="store_true", help="write what was measured into docs/performance.md and README.md")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)
    measured = {}
    for name in options.only.split(",") if options.only else [name for name in PARTS if name != "scale"]:
        measure.rows.clear()
        PARTS[name](options.work, options.size)
        if measure.rows:
            measured[name] = list(measure.rows)
    if options.write or not options.only:
        documents.write(measured, measure.headlines)
    if not options.keep:
        shutil.rmtree(options.work)


if __name__ == "__main__":
    main()
