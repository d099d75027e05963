"""make_seeds.py FOLDER: writes the files that fuzz_arrow and fuzz_parquet start from.

They are kept in tests/fuzz/seeds: one small file for every type that pyarrow can write, plain, as a
stream and as a file, and some compressed. Needs pyarrow (`make peer`).
"""
import datetime
import decimal
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq

WORDS = ["a", "", None, "a text of more than twelve bytes", "ä🙂", "b"]
NUMBERS = [1, None, 2, 3, 0, 5]
LISTS = [[1, 2], [], None, [3], [4, None], [5, 6, 7]]


def strings(kind):
    return pa.array(WORDS, kind)


def unions():
    types = pa.array([0, 1, 0, 1, 1, 0], pa.int8())
    numbers = pa.array([1, 2, 3], pa.int64())
    words = pa.array(["x", "y", "a text of more than twelve bytes"])
    offsets = pa.array([0, 0, 1, 1, 2, 2], pa.int32())
    yield "dense_union", pa.UnionArray.from_dense(types, offsets, [numbers, words])
    yield "sparse_union", pa.UnionArray.from_sparse(
        types, [pa.array(range(6), pa.int32()), pa.array(list("uvwxyz"))])


def list_views():
    values = pa.array([1, 2, 3, 4, 5], pa.int32())
    yield "list_view", pa.ListViewArray.from_arrays([0, 2, 0, 4, 1, 0], [2, 2, 5, 1, 0, 1], values)
    yield "large_list_view", pa.LargeListViewArray.from_arrays([3, 0, 0, 4, 1, 0],
                                                               [2, 2, 5, 1, 0, 1], values)
    yield "list_view_of_text", pa.ListViewArray.from_arrays(
        [0, 2, 0, 1, 1, 0], [2, 1, 3, 1, 0, 1], pa.array(["a", "bc", "def"], pa.string_view()))


def nested():
    rows = [{"a": 1, "b": "x"}, None, {"a": None, "b": "yy"}, {"a": 4, "b": None}] + [{
        "a": 5, "b": ""
    }] * 2
    struct = pa.struct([("a", pa.int64()), ("b", pa.string())])
    yield "struct", pa.array(rows, struct)
    yield "list_of_struct", pa.array([rows, [], None, rows[:1], rows[1:2], rows], pa.list_(struct))
    yield "list_of_list", pa.array([LISTS, [], None, [[1]], [[]], [None]],
                                   pa.list_(pa.list_(pa.int16())))
    yield "map", pa.array([[("k", 1)], [], None, [("l", None)], [("m", 2), ("n", 3)], []],
                          pa.map_(pa.string(), pa.int32()))
    for name, kind in [("list", pa.list_(pa.int32())), ("large_list", pa.large_list(pa.int64())),
                       ("list_of_bool", pa.list_(pa.bool_())),
                       ("list_of_float", pa.list_(pa.float32()))]:
        yield name, pa.array(LISTS if "bool" not in name else [[True], [], None] * 2, kind)
    yield "list_of_text", pa.array([["a"], [], None, ["b", None], WORDS, [""]],
                                   pa.list_(pa.string()))
    yield "list_of_view", pa.array([["a"], [], None, WORDS, WORDS, [""]],
                                   pa.list_(pa.string_view()))
    yield "fixed_size_list", pa.array([[1, 2], None, [3, 4], [5, 6], [7, None], [8, 9]],
                                      pa.list_(pa.int32(), 2))
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1, 0, 0], pa.int8()),
                                                pa.array(["x", "yy"]))
    yield "dictionary", dictionary
    yield "dictionary_of_int", pa.array([5, 6, 5, None, 5, 6]).dictionary_encode()
    yield "dictionary_of_view", pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 0, 1, 0, 0], pa.int32()), strings(pa.string_view()))
    yield "struct_of_dictionary", pa.StructArray.from_arrays([dictionary], ["d"])
    yield "run_end_encoded", pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 3, 6], pa.int32()), pa.array(["x", None, "yy"]))
    yield "run_end_encoded_int", pa.RunEndEncodedArray.from_arrays(
        pa.array([1, 6], pa.int16()), pa.array([1, 2], pa.int64()))


def plain():
    day = datetime.date(2026, 1, 2)
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5)
    for kind in [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
                 pa.uint32(), pa.uint64(), pa.float32(), pa.float64()]:
        yield str(kind), pa.array(NUMBERS, kind)
    yield "half", pa.array([1.5, None, 2, 3, 0, 5], pa.float16())
    yield "bool", pa.array([True, None, False] * 2)
    yield "null", pa.nulls(6)
    for kind in [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
                 pa.binary_view()]:
        yield str(kind), strings(kind)
    yield "fixed_size_binary", pa.array([b"abc", None, b"def"] * 2, pa.binary(3))
    for kind in [pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(20, 2),
                 pa.decimal256(50, 2)]:
        yield str(kind).split("(")[0], pa.array([decimal.Decimal("1.25"), None] * 3, kind)
    yield "date32", pa.array([day, None] * 3, pa.date32())
    yield "date64", pa.array([day, None] * 3, pa.date64())
    for unit in ["s", "ms", "us", "ns"]:
        yield f"timestamp_{unit}", pa.array([moment, None] * 3, pa.timestamp(unit))
        yield f"duration_{unit}", pa.array([datetime.timedelta(1), None] * 3, pa.duration(unit))
    yield "timestamp_zone", pa.array([moment, None] * 3, pa.timestamp("us", "Europe/Berlin"))
    for kind in [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]:
        yield str(kind).replace("[", "_").rstrip("]"), pa.array([moment.time(), None] * 3, kind)
    yield "interval", pa.array([pa.MonthDayNano([1, 2, 3]), None] * 3, pa.month_day_nano_interval())


def extensions():
    documents = pa.array(['{"a": 1}', "[1]", None] * 2)
    yield "json", pa.ExtensionArray.from_storage(pa.json_(), documents)
    yield "uuid", pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"] * 6,
                                                                     pa.binary(16)))
    yield "bool8", pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, None] * 2, pa.int8()))
    yield "tensor", pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int32(), [2]), pa.array([[1, 2]] * 6, pa.list_(pa.int32(), 2)))


def write(path, batches, as_file, compression=None):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    new = pa.ipc.new_file if as_file else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as out, new(out, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_bombs(folder):
    """Small files that unpack to a gigabyte, for tests/integration/hostile."""
    folder.mkdir(parents=True, exist_ok=True)
    zeros = pa.Array.from_buffers(pa.int64(), 1 << 27, [None, pa.py_buffer(bytes(1 << 30))])
    write(folder / "zeros.arrow", [pa.record_batch([zeros], ["zeros"])], as_file=False,
          compression="zstd")
    first = pa.Array.from_buffers(pa.int8(), 1 << 20, [None, pa.py_buffer(bytes(1 << 20))])
    word = pa.DictionaryArray.from_arrays(first, ["x" * 1024])
    pq.write_table(pa.table({"word": word}), folder / "words.parquet", compression="zstd",
                   store_schema=False, write_statistics=False)


def main(folder):
    write_bombs(folder / "bombs")
    arrow, parquet = folder / "arrow", folder / "parquet"
    arrow.mkdir(parents=True, exist_ok=True)
    parquet.mkdir(parents=True, exist_ok=True)
    columns = [*plain(), *nested(), *list_views(), *unions(), *extensions()]
    for number, (name, array) in enumerate(columns):
        batch = pa.record_batch([array], [name[:4]])
        write(arrow / f"{name}.arrow", [batch, batch.slice(1, 3)], as_file=number % 4 == 0)
    nothing = pa.record_batch([pa.array(range(6))], ["n"]).select([])
    write(arrow / "no_columns.arrow", [nothing, nothing.slice(1, 3)], as_file=True)
    chosen = dict(columns)
    some = ["int64", "string", "string_view", "list", "struct", "dictionary", "run_end_encoded"]
    batch = pa.record_batch([chosen[name] for name in some], some)
    for compression in ["zstd", "lz4"]:
        write(arrow / f"{compression}.arrow", [batch, batch], as_file=compression == "lz4",
              compression=compression)
    skip = ("union", "interval", "run_end", "dictionary_of_view", "half")
    for name, array in columns:
        if any(word in name for word in skip):
            continue
        table = pa.table([array], ["c"])
        try:
            pq.write_table(table, parquet / f"{name}.parquet", compression="none",
                           write_statistics=False)
        except pa.ArrowNotImplementedError:
            (parquet / f"{name}.parquet").unlink(missing_ok=True)
    table = pa.table({name: chosen[name] for name in some[:-1]})
    for compression in ["snappy", "gzip", "zstd", "lz4", "brotli"]:
        pq.write_table(table, parquet / f"{compression}.parquet", compression=compression,
                       use_dictionary=compression != "gzip", data_page_version="2.0")
    numbers = pa.table({"n": pa.array(range(40), pa.int64())})
    for encoding in ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"]:
        pq.write_table(numbers, parquet / f"{encoding.lower()}.parquet", use_dictionary=False,
                       column_encoding={"n": encoding}, compression="none")
    words = pa.table({"s": strings(pa.string())})
    for encoding in ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]:
        pq.write_table(words, parquet / f"{encoding.lower()}.parquet", use_dictionary=False,
                       column_encoding={"s": encoding}, compression="none")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
