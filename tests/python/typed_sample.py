"""What programs write, and the types that they get. Checked by type checkers; not run."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import shardscope


def resume(run: Path) -> Optional[str]:
    return shardscope.latest(run, good=True, level="values")


def steps(path: str) -> list[tuple[str, Optional[str]]]:
    run = shardscope.run(path, tp_dim=["*.wq=0"])
    judged = run.validate(level="files")
    worst: shardscope.types.Verdict = judged.verdict
    whole: Optional[shardscope.Step] = judged.newest_whole
    print(worst, whole.path if whole else "", run.document["newest_whole"])
    for skipped in run.latest()["skipped"]:
        print(skipped["why"].upper())
    return [(step.name, step.verdict) for step in run]


def look(path: str) -> int:
    with shardscope.open(path, format="dcp", threads=2, memory="2GiB") as checkpoint:
        tensor = checkpoint["w"]
        rows, name, dtype = tensor.shape[0] + tensor.nbytes, tensor.name.upper(), tensor.dtype.upper()
        master: Optional[shardscope.Tensor] = tensor.master
        total = checkpoint.info()["totals"]["bytes"] + sum(row["bytes"] for row in checkpoint.tensors)
        print(rows, name, dtype, master, total, tensor.stats()["mean"], tensor.chunks[0]["length"])
        for key, value in checkpoint.items():
            print(key.upper(), value.role == "parameter")
        part: shardscope.View = tensor.view[128:256, ::2].T
        print(part.shape[0] + part.size, checkpoint.to_arrow().num_rows, tensor.jax(), checkpoint.jax(weights_only=True)["w"])
        checkpoint.validate("values", progress="log")
        return len(checkpoint) + len(checkpoint.select("*", weights_only=True))


def gate(path: str) -> list[str]:
    report = shardscope.open(path).validate("values", on="local:4", progress=lambda phase, done, total, name: None)
    found = [f"{f.rule} {f.severity} {f.message}: {f.count} {f.examples[0]['tensor']}" for f in report.findings]
    return [*found, report.to_html(), *report.document["checked"]]


def convert(source: str, target: Path) -> int:
    options: dict[str, Any] = {}
    plan = shardscope.plan(source, target, to="safetensors", weights_only=True, **options)
    report = shardscope.convert(source, target, to="safetensors", mesh="tp=4", shard=["*:tp=0"], verify="full", overwrite=True,
                                progress="tqdm")
    difference = shardscope.diff(source, target, values=True, rename="^model=")
    names = [each["name"] for each in difference["values"] if each["different"]]
    try:
        shardscope.reshard(source, target, like="source")
    except shardscope.Error as error:
        print(error.code, error.hint or "", error.offset or 0)
    return plan["bytes_written"] + report["bytes_read"] + len(names)
