"""A state dict in memory, as the pieces of the file that torch.save would make of it."""
from __future__ import annotations

import pickle
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

    # Bytes, or address and length of a storage.
    Piece = Union[bytes, tuple[int, int]]

_MOST = 0xFFFFFFFF  # of a 32-bit field; where it stands, the extra field has the number


class _Archive:
    """Takes the records that torch would write; what holds the storages must live as long as the pieces are read."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.held: list[Any] = []
        self._at = 0
        self._entries: list[tuple[bytes, int, int]] = []  # name, size, offset of the header

    def _add(self, piece: Piece, size: int) -> None:
        self.pieces.append(piece)
        self._at += size

    def write_record(self, name: str, data: Any, size: int) -> None:
        full = b"state/" + name.encode("utf-8", "surrogatepass")
        sizes = struct.pack("<HHQQ", 1, 16, size, size) if size >= _MOST else b""
        # Elements begin at a multiple of 64 bytes, as torch has them.
        pad = -(self._at + 30 + len(full) + len(sizes) + 4) % 64
        extra = sizes + struct.pack("<HH", 0x4246, pad) + bytes(pad)
        head = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 45, 0x0800, 0, 0, 0, 0, min(size, _MOST), min(size, _MOST), len(full),
                           len(extra))
        self._entries.append((full, size, self._at))
        self._add(head + full + extra, len(head) + len(full) + len(extra))
        if size == 0:
            return
        if isinstance(data, str):
            data = data.encode()
        if isinstance(data, bytes):
            self._add(data, size)
        else:  # a storage, or where one begins
            self.held.append(data)
            self._add((data if isinstance(data, int) else data.data_ptr(), size), size)

    def end(self) -> list[Piece]:
        begin, directory = self._at, b""
        for name, size, offset in self._entries:
            large = [n for n in (size, size, offset) if n >= _MOST]
            extra = struct.pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large) if large else b""
            directory += struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 45, 45, 0x0800, 0, 0, 0, 0, min(size, _MOST), min(size, _MOST), len(name),
                                     len(extra), 0, 0, 0, 0, min(offset, _MOST)) + name + extra
        count, end = len(self._entries), begin + len(directory)
        directory += struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, end - begin, begin)
        directory += struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
        directory += struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, _MOST, _MOST, 0)
        self._add(directory, len(directory))
        return self.pieces


def archive_of(state: Any) -> _Archive:
    """The file, ended. Tensors on a GPU are copied to memory; others are read where they are."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("shardscope.save needs torch: pip install torch") from error
    archive = _Archive()
    # How torch.save pickles, with another writer in place of its own.
    write: Any = torch.serialization._save
    write(state, archive, _Pickling, 2, False)
    archive.write_record("version", "3\n", 2)
    archive.end()
    return archive


class _Pickling:
    class Pickler(pickle.Pickler):
        def reducer_override(self, value: Any) -> Any:
            """A NumPy array is a tensor over the same memory."""
            if type(value).__module__ != "numpy" or type(value).__name__ != "ndarray":
                return NotImplemented
            import torch

            tensor: Any = torch.from_numpy(value)
            return tensor.__reduce_ex__(2)
