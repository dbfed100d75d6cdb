"""What a checkpoint holds, as a table of Arrow."""
import pytest
from conftest import genuine
from pages import block_with

import shardscope

pyarrow = pytest.importorskip("pyarrow")


def test_to_arrow(tmp_path):
    import pyarrow.parquet

    checkpoint = shardscope.open(genuine("dcp/t2.15.0-fsdp2-tp"))
    table = checkpoint.to_arrow()
    assert table.to_pylist() == checkpoint.tensors and table.num_rows == len(checkpoint) > 0
    pyarrow.parquet.write_table(table, tmp_path / "tensors.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "tensors.parquet").equals(table)


def test_a_checkpoint_without_tensors(tmp_path):
    import json

    (tmp_path / "a.safetensors").write_bytes(len(header := json.dumps({}).encode()).to_bytes(8, "little") + header)
    table = shardscope.open(tmp_path / "a.safetensors").to_arrow()
    assert table.num_rows == 0 and table.column_names[0] == "name"


def test_the_page():
    """The page's own lines, with pandas."""
    pytest.importorskip("pandas")
    checkpoint = shardscope.open(genuine("dcp/t2.15.0-fsdp2-adam"))
    names, (*lines, grouped) = {"ckpt": checkpoint}, block_with("docs/python.md", "pandas.DataFrame").splitlines()
    exec("\n".join(lines), names)
    assert list(names["frame"].columns) == ["name", "dtype", "shape", "bytes", "role", "alias_of", "ranks"] and len(names["frame"]) == len(checkpoint)
    by_role = {}
    for tensor in checkpoint.tensors:
        by_role[tensor["role"]] = by_role.get(tensor["role"], 0) + tensor["bytes"]
    assert eval(grouped, names).to_dict() == by_role and len(by_role) > 1
