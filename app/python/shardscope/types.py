"""The JSON documents of docs/schemas as types. Fields of classes with ``total=False`` are there where they mean something."""
from __future__ import annotations

from typing import Any, Literal, Optional, TypedDict, Union

Level = Literal["metadata", "files", "values"]
Verdict = Literal["safe", "care", "unsafe"]
Severity = Literal["info", "warning", "error"]
Role = Literal["parameter", "buffer", "optimizer", "other"]
Number = Union[float, Literal["nan", "inf", "-inf"]]


class Reason(TypedDict):
    name: str
    why: str


class ErrorDocument(TypedDict):
    """shardscope.error/1"""

    schema: str
    code: str
    message: str
    file: Optional[str]
    offset: Optional[int]
    tensor: Optional[str]
    rule: Optional[str]
    hint: Optional[str]


# ---------------------------------------------------------------- a checkpoint


class MeshAxis(TypedDict):
    name: str
    size: int


class Mesh(TypedDict):
    """The ranks as a grid; ``evidence`` says what that was seen from."""

    axes: list[MeshAxis]
    source: Literal["declared", "inferred"]
    evidence: list[str]


class Totals(TypedDict):
    tensors: int
    parameters: int
    optimizer_elements: int
    elements: int
    bytes: int
    chunks: int
    objects: int
    files: int
    ranks: int


class Share(TypedDict):
    tensors: int
    bytes: int


class Module(TypedDict):
    name: str
    tensors: int
    bytes: int


class Special(TypedDict):
    """A tensor that is no plain array."""

    name: str
    kind: str
    dtype: str
    shape: list[int]


class Note(TypedDict):
    rule: str
    severity: Severity
    message: str


class Quantized(TypedDict):
    """What a checkpoint holds of one scheme of quantized weights."""

    scheme: str
    title: str
    weights: int
    tensors: int
    bytes: int


class _Info(TypedDict):
    schema: str
    path: str
    format: str
    variant: str
    writer: str
    totals: Totals
    dtypes: dict[str, Share]
    quantized: list[Quantized]
    mesh: Optional[Mesh]
    modules: list[Module]
    specials: list[Special]
    notes: list[Note]


class Info(_Info, total=False):
    """shardscope.info/1"""

    data_elsewhere: str
    ranks: list[RankShare]


class RankShare(TypedDict):
    """What a rank holds: an entry of ``Checkpoint.ranks``. ``bytes`` is the sum of the four that follow."""

    rank: int
    place: Optional[dict[str, int]]
    tensors: int
    chunks: int
    bytes: int
    parameter_bytes: int
    buffer_bytes: int
    optimizer_bytes: int
    other_bytes: int
    files: list[str]


class Flat(TypedDict):
    offsets: list[int]
    lengths: list[int]
    start: int
    stop: int


class _Chunk(TypedDict):
    rank: Optional[int]
    file: Optional[str]
    offset: int
    length: int


class Chunk(_Chunk, total=False):
    """Where some of a tensor is stored: a box, or a range of the elements of one."""

    offsets: list[int]
    lengths: list[int]
    flat: Flat


class Row(TypedDict):
    """A tensor in ``Checkpoint.tensors``."""

    name: str
    dtype: str
    shape: list[int]
    bytes: int
    role: Role
    alias_of: Optional[str]
    ranks: list[int]


class Histogram(TypedDict):
    low: Optional[Number]
    high: Optional[Number]
    counts: list[int]


class Statistics(TypedDict):
    """``values`` of shardscope.show/1"""

    elements: int
    nan: int
    inf: int
    zero: int
    min: Optional[Number]
    max: Optional[Number]
    mean: Optional[Number]
    std: Optional[Number]
    histogram: Histogram


class Digest(TypedDict):
    """shardscope.digest/1"""

    schema: str
    algorithm: Literal["tile", "sha256", "crc32"]
    tensors: dict[str, str]


class Index(TypedDict):
    """shardscope.index/1"""

    schema: str
    path: str
    file: str
    bytes: int
    tensors: int
    chunks: int
    objects: int


class Extract(TypedDict):
    """shardscope.extract/1"""

    schema: str
    file: str
    dtype: str
    shape: list[int]
    note: str


# ---------------------------------------------------------------- validations and runs


class _Example(TypedDict):
    tensor: Optional[str]
    rank: Optional[int]
    file: Optional[str]
    offset: Optional[int]
    offsets: Optional[list[int]]
    lengths: Optional[list[int]]


class Example(_Example, total=False):
    detail: str


class Accepted(TypedDict):
    reason: str
    by: str
    at: str


class _Finding(TypedDict):
    rule: str
    severity: Severity
    count: int
    message: str
    cause: str
    examples: list[Example]


class FindingDocument(_Finding, total=False):
    """``step``: of a run, the step that it is about. ``about``: what it hurts, as "rank 22, 678 tensors"."""

    about: str
    accepted: Accepted
    step: Optional[str]


class Validate(TypedDict):
    """shardscope.validate/1"""

    schema: str
    verdict: Verdict
    verdict_strict: Verdict
    words: str
    level: Level
    checked: list[str]
    not_checked: list[str]
    not_checked_options: list[Optional[str]]
    findings: list[FindingDocument]


class ReadyLine(TypedDict):
    id: Literal["weights", "optimizer", "masters", "step", "scheduler", "random", "loader", "commit", "loads_in", "fits_on"]
    title: str
    mark: Literal["yes", "no", "none"]
    text: str
    evidence: Optional[str]
    tensor: Optional[str]
    file: Optional[str]


class Ready(TypedDict):
    """shardscope.ready/1"""

    schema: str
    path: str
    resumes: bool
    words: str
    verdict: Verdict
    level: Level
    lines: list[ReadyLine]
    passed: list[Reason]


class Tracker(TypedDict):
    file: str
    names: str
    exists: bool


class _Step(TypedDict):
    name: str
    step: Optional[int]
    path: str
    saved: Optional[str]
    seconds_since_previous: Optional[float]
    files: int
    bytes: int
    format: Optional[str]
    ranks: Optional[int]
    mesh: Optional[str]
    ranks_before: Optional[int]
    mesh_before: Optional[str]
    verdict: Optional[Verdict]
    reason: Optional[str]
    level: Optional[Level]


class StepDocument(_Step, total=False):
    unchanged: bool
    error: ErrorDocument


class RunDocument(TypedDict):
    """shardscope.run/1"""

    schema: str
    path: str
    tracker: Optional[Tracker]
    newest_whole: Optional[str]
    steps: list[StepDocument]


class JudgedRun(RunDocument):
    """shardscope.run/1 of a run that was validated"""

    verdict: Verdict
    level: Level
    findings: list[FindingDocument]


class _Latest(TypedDict):
    schema: str
    name: Optional[str]
    path: Optional[str]
    step: Optional[int]
    skipped: list[Reason]


class Latest(_Latest, total=False):
    """shardscope.latest/1"""

    level: Level
    verdict: Verdict


ValuesBy = Literal["module", "layer", "tensor"]


class ValueGroup(TypedDict):
    name: str
    kind: Literal["weight", "moment", "other"]
    tensors: int
    elements: int
    norm: Optional[float]
    rms: Optional[float]
    mean: Optional[float]
    largest: Optional[float]
    zeros: int
    nan: int
    inf: int


class StepValues(TypedDict):
    name: str
    groups: list[ValueGroup]


class ValueMark(TypedDict):
    step: str
    group: str
    what: Literal["jump", "non-finite", "dead-experts"]
    text: str


class LeftOut(TypedDict):
    step: str
    why: str


class Stats(TypedDict):
    """shardscope.stats/1"""

    schema: str
    path: str
    by: ValuesBy
    steps: list[StepValues]
    marks: list[ValueMark]
    left_out: list[LeftOut]


# ---------------------------------------------------------------- comparisons and conversions


class Difference(TypedDict):
    name: str
    a: str
    b: str


class ValueDifference(TypedDict):
    name: str
    different: int
    max_abs: Number
    max_rel: Number
    max_ulp: int
    cosine: Number
    l2: Number
    rel_l2: Number


class DiffSummary(TypedDict):
    equal: int
    different: int
    max_abs: Number
    max_rel: Number
    l2: Number
    rel_l2: Number


class ModuleMoves(TypedDict):
    name: str
    tensors: int
    stays: int
    arrives: int
    leaves: int


class Moves(TypedDict):
    headline: str
    stays: int
    arrives: int
    leaves: int
    modules: list[ModuleMoves]


class _Diff(TypedDict):
    schema: str
    equal: bool
    only_a: list[str]
    only_b: list[str]
    shape: list[Difference]
    dtype: list[Difference]
    placement: list[Difference]
    values: list[ValueDifference]
    values_compared: bool
    compared: int
    summary: Optional[DiffSummary]
    left_out_a: list[Reason]
    left_out_b: list[Reason]
    recipe: Optional[str]


class Diff(_Diff, total=False):
    """shardscope.diff/1"""

    moves: Moves


class PlanSource(TypedDict):
    path: str
    format: str


class PlanTarget(TypedDict):
    path: str
    format: str
    variant: str


class PlanFile(TypedDict):
    path: str
    size: int


# Their "from" is no name in Python.
Made = TypedDict("Made", {"name": str, "from": str})
Renamed = TypedDict("Renamed", {"name": str, "to": str})
Assets = TypedDict("Assets", {"from": str, "files": list[str]})


class Masters(TypedDict):
    used: list[Made]
    unused: int


class Averaged(TypedDict):
    path: str
    weight: float


class Average(TypedDict):
    inputs: list[Averaged]
    accumulate: str
    not_averaged: list[Reason]


class Transformers(TypedDict):
    loads: bool
    why: list[str]


class _Plan(TypedDict):
    schema: str
    source: PlanSource
    target: PlanTarget
    tensors: int
    chunks: int
    objects: int
    replicas_not_compared: int
    bytes_read: int
    bytes_written: int
    peak_memory: int
    files: list[PlanFile]
    assets: Optional[Assets]
    left_out: list[Reason]
    excluded: list[Reason]
    impossible: list[Reason]
    changed: list[Reason]
    made: list[Made]
    unknown: list[Reason]
    notes: list[Reason]
    renamed: list[Renamed]
    masters: Masters
    placement: list[Reason]
    cut_bytes: int
    whole_bytes: int
    warning: Optional[str]
    recipe: Optional[str]
    transformers: Optional[Transformers]
    checksums: Optional[str]
    estimate_s: float


class _Group(TypedDict):
    ranks: int
    mode: str
    backend: str
    expected_bytes_moved: int
    expected_seconds: float
    link_rate: float
    compute: str


class FlowFile(TypedDict):
    path: str
    rank: Optional[int]


class Flow(TypedDict):
    """Who reads what from whom. cells: number of the file, rank of the target, bytes, pieces."""

    exact: bool
    ranks: int
    files: list[FlowFile]
    cells: list[list[int]]


class Plan(_Plan, total=False):
    """shardscope.plan/1"""

    average: Average
    group: _Group
    flow: Flow


class Checksums(TypedDict):
    checked: int
    unchecked: int
    text: Optional[str]


class _ReportFinding(TypedDict):
    rule: str
    severity: Severity
    tensor: str


class ReportFinding(_ReportFinding, total=False):
    nan: int
    inf: int
    message: str


class DiskShare(TypedDict):
    rank: int
    files: int
    bytes: int


class _GroupDone(_Group):
    bytes_moved: int


class GroupDone(_GroupDone, total=False):
    """Of ranks: how they have worked."""

    disks: list[DiskShare]


class _Report(TypedDict):
    schema: str
    plan: Plan
    started: str
    finished: str
    bytes_read: int
    bytes_written: int
    bytes_reused: int
    peak_rss: int
    system_io: dict[str, Any]
    seconds: float
    verify_seconds: float
    rate: float
    verified: bool
    verify: Literal["digest", "full", "checksums", "none"]
    unguarded: bool
    left_out: list[Reason]
    unknown: list[Reason]
    replicas_not_compared: int
    findings: list[ReportFinding]
    checksums: Checksums
    digests: dict[str, str]


class Report(_Report, total=False):
    """shardscope.report/1"""

    group: GroupDone


# ---------------------------------------------------------------- what there is


class Holds(TypedDict):
    shards: bool
    objects: bool
    aliases: bool
    nesting: bool


class Format(TypedDict):
    name: str
    title: str
    reads: bool
    writes: bool
    generations: list[str]
    variants: list[str]
    models: list[str]
    options: list[str]
    holds: Holds


class Formats(TypedDict):
    """shardscope.formats/1"""

    schema: str
    formats: list[Format]


class Recipe(TypedDict):
    name: str
    description: str
    recipe: dict[str, Any]


class Recipes(TypedDict):
    """shardscope.recipes/1"""

    schema: str
    recipes: list[Recipe]
