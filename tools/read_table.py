#!/usr/bin/env python3
"""Writes the texts of a Parquet or Arrow file (sluice_channel.py says where).

Usage: read_table.py FILE COLUMN

All integers are little-endian. A status byte comes first and before each piece: K, and the piece; or X, a uint64 size
and a message, which names the file. A piece is uint64 count (0: the end), uint64 parts per million of the file that are read, and for each
text uint64 bytes (2^64 - 1: the text is null) and the cell's bytes, which writers should have made UTF-8 and some
did not.
"""

import os
import struct
import sys

import sluice_channel as channel
from sluice_channel import sink

ROWS = 1024
NULL = struct.pack("<Q", 2**64 - 1)


class BadInput(Exception):
    """A message for the user."""


def load_library():
    channel.package("pyarrow.ipc")
    channel.package("pyarrow.parquet")
    return channel.package("pyarrow")


def require_text(pyarrow, schema, column):
    names = ", ".join(schema.names)
    if column not in schema.names:
        raise BadInput(f"there is no column '{column}': name one of {names} with --text-key")
    kind = schema.field(column).type
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    if not any(str(kind) == name for name in ("string", "large_string", "string_view")):
        raise BadInput(f"column '{column}' holds {kind}, not text: name another one of {names} with --text-key")


def parquet_pieces(pyarrow, path, column):
    """(share read, texts) of each piece of rows."""
    file = pyarrow.parquet.ParquetFile(path)
    require_text(pyarrow, file.schema_arrow, column)
    rows, done = max(file.metadata.num_rows, 1), 0
    for batch in file.iter_batches(batch_size=ROWS, columns=[column]):
        done += batch.num_rows
        yield done / rows, batch.column(0)


def arrow_pieces(pyarrow, path, column):
    size = max(os.path.getsize(path), 1)
    with pyarrow.memory_map(path) as file:
        try:
            reader = pyarrow.ipc.open_stream(file)
            batches = iter(reader)
        except pyarrow.ArrowInvalid:
            reader = pyarrow.ipc.open_file(file)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        require_text(pyarrow, reader.schema, column)
        for batch in batches:
            for begin in range(0, batch.num_rows, ROWS):
                yield min(file.tell() / size, 1), batch.column(column).slice(begin, ROWS)


def packed(cell):
    return NULL if cell is None else struct.pack("<Q", len(cell)) + cell


def cells_of(pyarrow, column):
    """The bytes of each cell, whatever they are."""
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pyarrow.large_binary()).to_pylist()


def write_piece(done, cells):
    sink.write(b"K" + struct.pack("<QQ", len(cells), int(done * 1e6)))
    sink.writelines(map(packed, cells))
    sink.flush()


def main():
    path, column = sys.argv[1:]
    try:
        pyarrow = load_library()
        read = arrow_pieces if path.endswith(".arrow") else parquet_pieces
        sink.write(b"K")
        for done, column_texts in read(pyarrow, path, column):
            if len(column_texts) > 0:
                write_piece(done, cells_of(pyarrow, column_texts))
        write_piece(1, [])
    except BrokenPipeError:  # nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())
    except channel.Lacking as error:
        channel.tell_lacking(error)
    except BadInput as error:
        fail(f"{path}: {error}")
    except Exception as error:
        fail(f"{path}: cannot be read as a table: {error}")


def fail(message):
    data = " ".join(str(message).split()).encode("utf-8", "replace")
    sink.write(b"X" + struct.pack("<Q", len(data)) + data)
    sink.flush()


if __name__ == "__main__":
    main()
