#!/usr/bin/env python3
"""Writes the texts of a Parquet, Arrow or CSV file, or its rows (sluice_channel.py says where).

Usage: read_table.py FILE NAME COLUMN SEPARATOR

NAME is what messages call the file. COLUMN holds the texts; empty: rows are written, as JSON objects. SEPARATOR stands
between the cells of a CSV file; empty: its ending tells it.

All integers are little-endian. A status byte comes first and before each piece: K, and the piece; or X, a uint64 size
and a message, which names the file. A piece is uint64 count (0: the end), uint64 parts per million of the file that are read, and for each
text uint64 bytes (2^64 - 1: the text is null) and the cell's bytes, which writers should have made UTF-8 and some
did not.
"""

import json
import os
import struct
import sys

import sluice_channel as channel
from sluice_channel import sink

ROWS = 1024
NULL = struct.pack("<Q", 2**64 - 1)
# What stands for null in CSV files where pandas reads them, which data sets are made with.
NULL_WORDS = ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
              "NULL", "NaN", "None", "n/a", "nan", "null"]


class BadInput(Exception):
    """A message for the user."""


def load_library():
    for name in ("csv", "ipc", "parquet"):
        channel.package("pyarrow." + name)
    return channel.package("pyarrow")


def columns_of(pyarrow, schema, column, any_type=False):
    """The names of the columns to read: that of the texts, or all that JSON can hold."""
    names = ", ".join(schema.names)
    if not column:
        return [field.name for field in schema if "binary" not in str(field.type)]
    if column not in schema.names:
        raise BadInput(f"there is no column '{column}': name one of {names} with --text-key")
    kind = schema.field(column).type
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    if not any_type and not any(str(kind) == name for name in ("string", "large_string", "string_view")):
        raise BadInput(f"column '{column}' holds {kind}, not text: name another one of {names} with --text-key")
    return [column]


def parquet_pieces(pyarrow, path, column):
    """(share read, record batch) of each piece of rows. Checksums of pages are checked where their writer made them."""
    file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    columns = columns_of(pyarrow, file.schema_arrow, column)
    rows, done = max(file.metadata.num_rows, 1), 0
    for batch in file.iter_batches(batch_size=ROWS, columns=columns):
        done += batch.num_rows
        yield done / rows, batch


def check_places(pyarrow, column):
    """Raises where a damaged file leads outside of what was read. Cells that are not UTF-8 are looked at one by one later."""
    as_bytes = {"string": pyarrow.binary, "large_string": pyarrow.large_binary}.get(str(column.type))
    try:
        (column.view(as_bytes()) if as_bytes else column).validate(full=True)
    except pyarrow.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise


def arrow_pieces(pyarrow, path, column):
    size = max(os.path.getsize(path), 1)
    with pyarrow.OSFile(path) as file:  # no mapped memory: a file that is cut off would end the process
        try:
            reader = pyarrow.ipc.open_stream(file)
            batches = iter(reader)
        except pyarrow.ArrowInvalid:
            reader = pyarrow.ipc.open_file(file)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        columns = columns_of(pyarrow, reader.schema, column)
        for batch in batches:
            batch = batch.select(columns)
            for each in batch.columns:
                check_places(pyarrow, each)
            for begin in range(0, batch.num_rows, ROWS):
                yield min(file.tell() / size, 1), batch.slice(begin, ROWS)


def csv_pieces(pyarrow, path, column, separator):
    csv = pyarrow.csv
    parse = csv.ParseOptions(delimiter=separator or ("\t" if ".tsv" in path else ","), newlines_in_values=True)
    with csv.open_csv(path, parse_options=parse) as first:
        columns = columns_of(pyarrow, first.schema, column, any_type=True)
    convert = csv.ConvertOptions(include_columns=columns, column_types={column: pyarrow.string() for column in columns},
                                 check_utf8=False, strings_can_be_null=True, null_values=NULL_WORDS)
    rows = sum(batch.num_rows for batch in csv.open_csv(path, parse_options=parse, convert_options=convert))
    done = 0
    for batch in csv.open_csv(path, parse_options=parse, convert_options=convert):
        for begin in range(0, batch.num_rows, ROWS):
            piece = batch.slice(begin, ROWS)
            done += piece.num_rows
            yield done / rows, piece


def cells_of(pyarrow, column):
    """The bytes of each cell, whatever they are."""
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pyarrow.large_binary()).to_pylist()


def rows_of(batch):
    """Each row as JSON; one that is not UTF-8 is a byte that JSON cannot hold."""
    try:
        rows = batch.to_pylist()
    except UnicodeDecodeError:
        if batch.num_rows == 1:
            return [b"\xff"]
        return [row for i in range(batch.num_rows) for row in rows_of(batch.slice(i, 1))]
    return [json.dumps(row, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass") for row in rows]


def packed(cell):
    return NULL if cell is None else struct.pack("<Q", len(cell)) + cell


def write_piece(done, cells):
    sink.write(b"K" + struct.pack("<QQ", len(cells), int(done * 1e6)))
    sink.writelines(map(packed, cells))
    sink.flush()


def pieces_of(pyarrow, path, column, separator):
    if path.endswith(".arrow"):
        return arrow_pieces(pyarrow, path, column)
    if path.endswith((".parquet", ".geoparquet", ".gpq")):
        return parquet_pieces(pyarrow, path, column)
    return csv_pieces(pyarrow, path, column, separator)


def fault_of(error, path, rows):
    """What is wrong with a table of which so many rows could be read. The library's own words tell of its insides, but where
    they say what a file has that it does not read, or which line of a CSV file is wrong."""
    behind = f" behind row {rows}" if rows else ""
    if isinstance(error, MemoryError):
        return f"a piece{behind} does not fit into memory: write the file in smaller row groups, or fetch it again if it is damaged"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    if "CRC" in str(error):
        return f"cannot be read as a table: the checksum (CRC) of a page{behind} is wrong: fetch it again"
    if type(error).__name__ == "ArrowNotImplementedError" or not path.endswith((".arrow", ".parquet", ".geoparquet", ".gpq")):
        return f"cannot be read as a table: {error}"
    return f"cannot be read as a table: it is {'damaged' + behind if rows else 'none, or damaged'}: fetch it again, or write it anew"


def main():
    path, name, column, separator = sys.argv[1:]
    rows = 0
    try:
        pyarrow = load_library()
        sink.write(b"K")
        for done, batch in pieces_of(pyarrow, path, column, separator):
            if batch.num_rows > 0:
                write_piece(done, cells_of(pyarrow, batch.column(0)) if column else rows_of(batch))
            rows += batch.num_rows
        write_piece(1, [])
    except (BrokenPipeError, ConnectionResetError):
        raise
    except channel.Lacking as error:
        channel.tell_lacking(error)
    except BadInput as error:
        fail(f"{name}: {error}")
    except Exception as error:
        fail(f"{name}: {fault_of(error, path, rows)}")


def fail(message):
    channel.tell(channel.refusal(message))


if __name__ == "__main__":
    channel.run(main)
