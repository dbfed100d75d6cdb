"""The types of the package: those of the options and documents that there are, and what type checkers make of them."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing

import pytest
from conftest import cases, genuine, options_of

import option_types
import shardscope
from shardscope import types

PACKAGE = pathlib.Path(shardscope.__file__).resolve().parent
STANDARD = genuine("dcp/t2.15.0-standard")


def test_options_are_those_of_the_table():
    """SHARDSCOPE_ACCEPT=1 writes the file anew."""
    file = PACKAGE.parent.parent.parent / "app" / "python" / "shardscope" / "_options.py"
    if os.environ.get("SHARDSCOPE_ACCEPT"):
        file.write_text(option_types.written())
    assert file.read_text() == option_types.written(), "_options.py is not up to date; SHARDSCOPE_ACCEPT=1 writes it"


def check(value, type, where):
    """That a document has the fields and values that its type says, and no others."""
    origin, arguments = typing.get_origin(type), typing.get_args(type)
    if type is typing.Any:
        return
    if type is None:
        type = type.__class__
    if origin is typing.Union:
        assert any(fits(value, each) for each in arguments), (where, value, type)
    elif origin is typing.Literal:
        assert value in arguments, (where, value)
    elif origin is list:
        assert isinstance(value, list), (where, value)
        for i, entry in enumerate(value):
            check(entry, arguments[0], f"{where}[{i}]")
    elif origin is dict:
        assert isinstance(value, dict), (where, value)
        for key, entry in value.items():
            check(entry, arguments[1], f"{where}.{key}")
    elif typing.is_typeddict(type) if hasattr(typing, "is_typeddict") else hasattr(type, "__required_keys__"):
        fields = typing.get_type_hints(type)
        assert type.__required_keys__ <= set(value) <= set(fields), (where, set(value) ^ set(fields))
        for key, entry in value.items():
            check(entry, fields[key], f"{where}.{key}")
    else:
        assert isinstance(value, (int, float) if type is float else type), (where, value, type)
        assert type is bool or not isinstance(value, bool), (where, value)


def fits(value, type):
    try:
        check(value, type, "")
    except (AssertionError, TypeError):
        return False
    return True


def test_the_check_finds_what_does_not_fit():
    right = {"name": "tp", "size": 2}
    check(right, types.MeshAxis, "axis")
    for wrong in ({"name": "tp"}, {**right, "more": 1}, {**right, "size": "2"}, {**right, "size": True}):
        assert not fits(wrong, types.MeshAxis)


def agrees(schema, root, type, where):
    """That a schema and a type speak of the same fields, and of values of the same kinds."""
    if "$ref" in schema:
        reference = schema["$ref"]
        if reference.startswith("urn:"):
            other = schema_of(reference.split(":")[2])
            return agrees(other, other, type, where)
        return agrees(root["$defs"][reference.rsplit("/", 1)[1]], root, type, where)
    if type is typing.Any:
        return
    origin, arguments = typing.get_origin(type), typing.get_args(type)
    if "anyOf" in schema and type is not types.Number:
        rest = [each for each in schema["anyOf"] if each != {"type": "null"}]
        if len(rest) == len(schema["anyOf"]):  # more than the package asks for
            return agrees(rest[0], root, type, where)
        assert NONE in arguments, (where, type)
        arguments = tuple(each for each in arguments if each is not NONE)
        return agrees(rest[0], root, typing.Union[arguments], where)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if type is types.Number:
        assert {"type": "number"} in schema["anyOf"], (where, schema)
    elif origin is typing.Union:
        assert "null" in kinds and NONE in arguments, (where, schema, type)
        rest = {**schema, "type": [kind for kind in kinds if kind != "null"]}
        agrees(rest, root, typing.Union[tuple(each for each in arguments if each is not NONE)], where)
    elif origin is typing.Literal:
        assert set(schema["enum"]) == set(arguments), (where, schema, type)
    elif origin is list:
        assert kinds == ["array"], (where, schema)
        agrees(schema["items"], root, arguments[0], where + "[]")
    elif origin is dict:
        assert kinds == ["object"] and "properties" not in schema, (where, schema)
        agrees(schema.get("additionalProperties", {}), root, arguments[1], where + "{}")
    elif hasattr(type, "__required_keys__"):
        assert kinds == ["object"], (where, schema)
        fields = typing.get_type_hints(type)
        # Findings of a run say the step; the package does not ask which recipes fit.
        more = {types.FindingDocument: {"step"}, types.Recipes: {"choices", "model", "assets"}}.get(type, set())
        assert set(fields) - more == set(schema["properties"]) - more, (where, set(fields) ^ set(schema["properties"]))
        if type is not types.JudgedRun:  # of a run, a verdict is there where it was judged
            assert type.__required_keys__ == set(schema["required"]), (where, type)
        for name, field in fields.items():
            if name in schema["properties"]:
                agrees(schema["properties"][name], root, field, where + "." + name)
    elif type is str and ("const" in schema or "enum" in schema):
        pass
    else:
        assert [KINDS[type]] == kinds, (where, schema, type)


NONE = type(None)
KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}
SCHEMAS = PACKAGE.parent.parent.parent / "docs" / "schemas"


def schema_of(name):
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def documents_typed():
    for name, type in vars(types).items():
        schema = re.match(r"shardscope\.(\w+)/1", getattr(type, "__doc__", None) or "")
        if schema and type is not types.RunDocument:
            yield pytest.param(schema.group(1), type, id=name)


@pytest.mark.parametrize("name, type", list(documents_typed()))
def test_types_are_those_of_the_schemas(name, type):
    schema = schema_of(name)
    agrees(schema, schema, type, name)


@pytest.mark.parametrize("name", ["dcp/t2.15.0-standard", "dcp/t2.15.0-damaged-gap", "deepspeed/z1_bf16_w2",
                                  "torch_save/t2.15.0-state-dict", "megatron/m0.16.1-gpt-tp2-llama"])
def test_documents_of_a_checkpoint(name):
    path = next(path for id, path, _ in cases() if id == name)
    checkpoint = shardscope.open(path, **options_of(name))
    check(checkpoint.info(), types.Info, "info")
    check(checkpoint.mesh, typing.Optional[types.Mesh], "mesh")
    check(checkpoint.validate().document, types.Validate, "validate")
    check(checkpoint.ready(), types.Ready, "ready")
    check(checkpoint.stats(), types.Stats, "stats")
    for row in checkpoint.tensors:
        check(row, types.Row, "row")
    for tensor in checkpoint.values():
        check(tensor.chunks, typing.List[types.Chunk], "chunks")
        if "damaged" not in name:
            check(tensor.stats(), types.Statistics, tensor.name)


def test_documents_of_verbs(tmp_path):
    check(shardscope.formats(), types.Formats, "formats")
    check(shardscope.recipes(), types.Recipes, "recipes")
    check(shardscope.digest(STANDARD), types.Digest, "digest")
    check(shardscope.index(STANDARD, tmp_path / "a.ssidx"), types.Index, "index")
    check(shardscope.extract(STANDARD, "model.embed.weight", tmp_path / "a.npy"), types.Extract, "extract")
    other = genuine("dcp/t2.15.0-no-dist")
    check(shardscope.diff(STANDARD, other, values=True), types.Diff, "diff")
    check(shardscope.plan(STANDARD, tmp_path / "x", to="safetensors"), types.Plan, "plan")
    check(shardscope.convert(STANDARD, tmp_path / "x", to="safetensors", exclude="*.none"), types.Report, "report")
    inputs = [tmp_path / "x", tmp_path / "x"]
    check(shardscope.average(inputs, tmp_path / "y", exclude="*float8*"), types.Report, "report")


def test_documents_of_runs(tmp_path):
    for name, source in (("step-10", STANDARD), ("step-20", genuine("dcp/t2.15.0-damaged-gap"))):
        shutil.copytree(source, tmp_path / name, copy_function=shutil.copyfile)
    (tmp_path / "step-30").mkdir()
    (tmp_path / "latest").write_text("step-20")
    run = shardscope.run(tmp_path)
    check(run.document, types.RunDocument, "run")
    check(run.validate().document, types.JudgedRun, "run")
    check(run.latest(), types.Latest, "latest")
    check(run.latest(good=False), types.Latest, "latest")
    check(run.ready(), types.Ready, "ready")
    check(run.stats(), types.Stats, "stats")


def mypy(place, what):
    # What of the package is no module is its native part, of which there is a stub.
    checked = ["--no-warn-return-any", "-p", "shardscope"] if what == "package" else ["--follow-imports=silent", str(place)]
    return [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, *checked]


def pyright(place, what):
    config = {"typeCheckingMode": "standard" if what == "package" else "strict", "extraPaths": [str(PACKAGE.parent)],
              "include": [str(PACKAGE if what == "package" else place)], "pythonVersion": "3.9",
              "reportMissingModuleSource": False}
    place.with_name("pyrightconfig.json").write_text(json.dumps(config))
    return [sys.executable, "-m", "basedpyright", "--project", str(place.parent), "--pythonpath", sys.executable]


@pytest.mark.parametrize("module, words", [("mypy", mypy), ("basedpyright", pyright)])
@pytest.mark.parametrize("what", ["sample", "mistakes", "package"])
def test_checker(module, words, what, tmp_path):
    """The sample is right, each line of the mistakes is found, and the package itself is right."""
    pytest.importorskip(module)
    place = tmp_path / "checked.py"
    text = pathlib.Path(__file__).with_name("typed_mistakes.py" if what == "mistakes" else "typed_sample.py").read_text()
    place.write_text(text)
    run = subprocess.run(words(place, what), capture_output=True, text=True, cwd=tmp_path, timeout=600,
                         env={**os.environ, "MYPYPATH": str(PACKAGE.parent)})
    if what != "mistakes":
        assert run.returncode == 0, run.stdout + run.stderr
        return
    wrong = {i + 1 for i, line in enumerate(text.splitlines()) if line.endswith("# wrong")}
    found = {int(line) for line in re.findall(r"checked\.py:(\d+):.* error", run.stdout)}
    assert run.returncode == 1 and wrong <= found, (wrong - found, run.stdout + run.stderr)
