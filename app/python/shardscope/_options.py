"""Options as keyword arguments. Made from the option table; test_types.py with SHARDSCOPE_ACCEPT=1 writes it anew."""
from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, Optional, TypedDict, Union

Text = Union[str, "os.PathLike[str]"]
Texts = Union[Text, Iterable[Text]]  # of an option that is repeatable
Size = Union[int, str]  # "512MiB"
ReadFormat = Literal["colossalai", "dcp", "deepspeed", "deepspeed-universal", "distcp", "easylm", "flax", "hf",
    "huggingface", "index", "levanter", "marin", "maxtext", "mcore", "megatron", "megatron-core", "meta", "meta-llama2",
    "nanotron", "nemo", "nxd", "ocdbt", "olmo", "orbax", "paddle", "paddle_dist", "paddle_hybrid", "paddle_nlp",
    "paddle_save", "paddlenlp", "paddlepaddle", "pt", "pytorch-dcp", "safetensors", "tckpt", "tensor-parallel",
    "tensor_parallel", "tensorrt-llm", "torch", "torch-checkpointing", "torch-ranks", "torch-xla", "torch.save",
    "torch_checkpointing", "torch_dist", "torch_ranks", "torch_save", "verl", "vllm", "xla-fsdp", "xla_fsdp", "zero"]
WrittenFormat = Literal["colossalai", "dcp", "deepspeed", "deepspeed-universal", "distcp", "hf", "huggingface", "mcore",
    "megatron", "megatron-core", "meta", "meta-llama2", "nemo", "nxd", "olmo", "paddle", "paddle_dist", "paddle_save",
    "paddlepaddle", "pt", "pytorch-dcp", "safetensors", "tckpt", "tensor-parallel", "tensor_parallel", "tensorrt-llm",
    "torch", "torch-checkpointing", "torch-ranks", "torch.save", "torch_checkpointing", "torch_dist", "torch_ranks",
    "torch_save", "verl", "vllm", "zero"]


class OpenOptions(TypedDict, total=False):
    """How a checkpoint is opened, beside its format."""

    also: Optional[Texts]
    buckets: Optional[Literal["keep", "parameters"]]
    dequantize: Optional[Text]
    io: Optional[Literal["auto", "direct", "buffered"]]
    master_weights: Optional[Literal["use", "ignore"]]
    memory: Optional[Size]
    remote_program: Optional[Text]
    threads: int
    tp_dim: Optional[Texts]
    variant: Optional[Text]
    weight_map: Optional[Literal["use", "ignore"]]


class OpenedOptions(TypedDict, total=False):
    """How a checkpoint is opened by functions that do that by themselves."""

    also: Optional[Texts]
    buckets: Optional[Literal["keep", "parameters"]]
    dequantize: Optional[Text]
    format: Optional[ReadFormat]
    io: Optional[Literal["auto", "direct", "buffered"]]
    master_weights: Optional[Literal["use", "ignore"]]
    memory: Optional[Size]
    remote_program: Optional[Text]
    threads: int
    tp_dim: Optional[Texts]
    variant: Optional[Text]
    weight_map: Optional[Literal["use", "ignore"]]


class WorkOptions(TypedDict, total=False):
    """How much of this machine work may take."""

    io: Optional[Literal["auto", "direct", "buffered"]]
    memory: Optional[Size]
    threads: int


class ReadingOptions(TypedDict, total=False):
    """Of readings that several processes may share."""

    io: Optional[Literal["auto", "direct", "buffered"]]
    memory: Optional[Size]
    on: Optional[Text]
    records: Optional[Text]
    remote_program: Optional[Text]
    threads: int


class ValidateOptions(TypedDict, total=False):
    """The same of a checkpoint that is not open yet."""

    also: Optional[Texts]
    buckets: Optional[Literal["keep", "parameters"]]
    dequantize: Optional[Text]
    format: Optional[ReadFormat]
    io: Optional[Literal["auto", "direct", "buffered"]]
    master_weights: Optional[Literal["use", "ignore"]]
    memory: Optional[Size]
    on: Optional[Text]
    records: Optional[Text]
    remote_program: Optional[Text]
    threads: int
    tp_dim: Optional[Texts]
    variant: Optional[Text]
    weight_map: Optional[Literal["use", "ignore"]]


class DiffOptions(TypedDict, total=False):
    """Of ``shardscope diff``."""

    also: Optional[Texts]
    buckets: Optional[Literal["keep", "parameters"]]
    dequantize: Optional[Text]
    exclude: Optional[Texts]
    format: Optional[ReadFormat]
    io: Optional[Literal["auto", "direct", "buffered"]]
    map: Optional[Text]
    master_weights: Optional[Literal["use", "ignore"]]
    memory: Optional[Size]
    remote_program: Optional[Text]
    rename: Optional[Texts]
    select: Optional[Texts]
    set: Optional[Texts]
    threads: int
    tp_dim: Optional[Texts]
    variant: Optional[Text]
    weight_map: Optional[Literal["use", "ignore"]]
    weights_only: bool


class PlanOptions(TypedDict, total=False):
    """Of ``shardscope plan``."""

    adapter: Optional[Text]
    also: Optional[Texts]
    assets: Optional[Text]
    backend: Optional[Literal["gloo", "nccl"]]
    buckets: Optional[Literal["keep", "parameters"]]
    compute: Optional[Literal["auto", "cpu", "gpu"]]
    dequantize: Optional[Text]
    dtype: Optional[Texts]
    exclude: Optional[Texts]
    expect: Optional[Text]
    fill_gaps: Optional[Literal["nan", "zero"]]
    finish: Optional[Literal["yes", "auto", "seal"]]
    format: Optional[ReadFormat]
    io: Optional[Literal["auto", "direct", "buffered"]]
    keys: Optional[Text]
    like: Optional[Text]
    map: Optional[Text]
    master_weights: Optional[Literal["auto", "use", "ignore"]]
    max_file_size: Optional[Size]
    memory: Optional[Size]
    mesh: Optional[Text]
    objects: Optional[Text]
    on: Optional[Text]
    own_disks: bool
    part: Optional[Text]
    remote_program: Optional[Text]
    rename: Optional[Texts]
    select: Optional[Texts]
    set: Optional[Texts]
    shard: Optional[Texts]
    skip_damaged: bool
    split: Optional[Literal["torch", "even", "paddle"]]
    stage: Optional[Texts]
    strict: bool
    threads: int
    to: Optional[WrittenFormat]
    tp_dim: Optional[Texts]
    unguarded: bool
    variant: Optional[Text]
    weight_map: Optional[Literal["use", "ignore"]]
    weights_only: bool


class ConvertOptions(TypedDict, total=False):
    """Of ``shardscope convert``."""

    adapter: Optional[Text]
    also: Optional[Texts]
    assets: Optional[Text]
    backend: Optional[Literal["gloo", "nccl"]]
    buckets: Optional[Literal["keep", "parameters"]]
    compute: Optional[Literal["auto", "cpu", "gpu"]]
    dequantize: Optional[Text]
    dry_run: bool
    dtype: Optional[Texts]
    exclude: Optional[Texts]
    expect: Optional[Text]
    fill_gaps: Optional[Literal["nan", "zero"]]
    finish: Optional[Literal["yes", "auto", "seal"]]
    format: Optional[ReadFormat]
    io: Optional[Literal["auto", "direct", "buffered"]]
    keys: Optional[Text]
    like: Optional[Text]
    map: Optional[Text]
    master_weights: Optional[Literal["auto", "use", "ignore"]]
    max_file_size: Optional[Size]
    memory: Optional[Size]
    mesh: Optional[Text]
    objects: Optional[Text]
    on: Optional[Text]
    overwrite: bool
    own_disks: bool
    part: Optional[Text]
    remote_program: Optional[Text]
    rename: Optional[Texts]
    resume: bool
    select: Optional[Texts]
    set: Optional[Texts]
    shard: Optional[Texts]
    skip_damaged: bool
    split: Optional[Literal["torch", "even", "paddle"]]
    stage: Optional[Texts]
    strict: bool
    threads: int
    to: Optional[WrittenFormat]
    tp_dim: Optional[Texts]
    unguarded: bool
    variant: Optional[Text]
    verify: Optional[Literal["digest", "full", "checksums", "none"]]
    weight_map: Optional[Literal["use", "ignore"]]
    weights_only: bool


class ReshardOptions(TypedDict, total=False):
    """Of ``shardscope reshard``."""

    adapter: Optional[Text]
    also: Optional[Texts]
    assets: Optional[Text]
    backend: Optional[Literal["gloo", "nccl"]]
    buckets: Optional[Literal["keep", "parameters"]]
    compute: Optional[Literal["auto", "cpu", "gpu"]]
    dequantize: Optional[Text]
    dry_run: bool
    dtype: Optional[Texts]
    exclude: Optional[Texts]
    expect: Optional[Text]
    fill_gaps: Optional[Literal["nan", "zero"]]
    finish: Optional[Literal["yes", "auto", "seal"]]
    format: Optional[ReadFormat]
    io: Optional[Literal["auto", "direct", "buffered"]]
    like: Optional[Text]
    map: Optional[Text]
    master_weights: Optional[Literal["auto", "use", "ignore"]]
    max_file_size: Optional[Size]
    memory: Optional[Size]
    mesh: Optional[Text]
    objects: Optional[Text]
    on: Optional[Text]
    overwrite: bool
    own_disks: bool
    part: Optional[Text]
    remote_program: Optional[Text]
    rename: Optional[Texts]
    resume: bool
    select: Optional[Texts]
    set: Optional[Texts]
    shard: Optional[Texts]
    skip_damaged: bool
    split: Optional[Literal["torch", "even", "paddle"]]
    stage: Optional[Texts]
    strict: bool
    threads: int
    tp_dim: Optional[Texts]
    unguarded: bool
    variant: Optional[Text]
    verify: Optional[Literal["digest", "full", "checksums", "none"]]
    weight_map: Optional[Literal["use", "ignore"]]
    weights_only: bool


class AverageOptions(TypedDict, total=False):
    """Of ``shardscope average``."""

    accumulate: Optional[Literal["fp32", "fp64"]]
    also: Optional[Texts]
    assets: Optional[Text]
    backend: Optional[Literal["gloo", "nccl"]]
    buckets: Optional[Literal["keep", "parameters"]]
    compute: Optional[Literal["auto", "cpu", "gpu"]]
    dequantize: Optional[Text]
    dry_run: bool
    dtype: Optional[Texts]
    exclude: Optional[Texts]
    expect: Optional[Text]
    finish: Optional[Literal["yes", "auto", "seal"]]
    format: Optional[ReadFormat]
    io: Optional[Literal["auto", "direct", "buffered"]]
    keys: Optional[Text]
    like: Optional[Text]
    map: Optional[Text]
    master_weights: Optional[Literal["auto", "use", "ignore"]]
    max_file_size: Optional[Size]
    memory: Optional[Size]
    mesh: Optional[Text]
    objects: Optional[Text]
    on: Optional[Text]
    optimizer: bool
    others: Optional[Literal["last", "same"]]
    overwrite: bool
    own_disks: bool
    part: Optional[Text]
    raw_weights: bool
    remote_program: Optional[Text]
    rename: Optional[Texts]
    resume: bool
    select: Optional[Texts]
    set: Optional[Texts]
    shard: Optional[Texts]
    skip_damaged: bool
    split: Optional[Literal["torch", "even", "paddle"]]
    stage: Optional[Texts]
    strict: bool
    threads: int
    to: Optional[WrittenFormat]
    tp_dim: Optional[Texts]
    unguarded: bool
    variant: Optional[Text]
    verify: Optional[Literal["digest", "full", "checksums", "none"]]
    weight_map: Optional[Literal["use", "ignore"]]
    weights: Optional[Text]
