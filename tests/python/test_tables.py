"""What a checkpoint holds, as a table of Arrow."""
import pytest
from conftest import genuine

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
