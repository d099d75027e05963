#pragma once

#include <gradus/data/dataset.h>
#include <gradus/data/table_dataset.h>

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// One or more paths or glob patterns, read in this order (the matches of a pattern in name order).
/// A folder written by `datasets.save_to_disk` counts as one path, as does a folder of data files
/// of one format.
class DataFiles {
 public:
  /// A file, pattern or folder.
  DataFiles(const char* path) : paths_{path} {}
  /// A file, pattern or folder.
  DataFiles(std::string path) : paths_{std::move(path)} {}
  /// A file or folder.
  DataFiles(const std::filesystem::path& path) : paths_{path.string()} {}
  /// Several, read one after the other.
  DataFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {}
  /// Several, read one after the other.
  DataFiles(std::initializer_list<std::string> paths) : paths_(paths) {}
  /// What was given, before patterns are expanded.
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::vector<std::string> paths_;
};

/// What a row of a text file is.
enum class TextUnit {
  line,       ///< one row per line; blank lines are rows
  paragraph,  ///< parted by an empty line
  document,   ///< one row per file
};

/// Options of `load_dataset` and `stream_dataset`.
struct LoadOptions {
  /// "parquet", "arrow", "csv", "tsv", "json", "jsonl", "text" or "tokens"; empty: by the file's
  /// extension.
  std::string format = {};
  /// Only these columns, in this order; empty: all. Unread columns cost nothing in Arrow and
  /// Parquet files.
  std::vector<std::string> columns = {};
  /// Text lines keep their line break (always "\n").
  bool keep_linebreaks = false;
  /// What a row of a text file is.
  TextUnit text_unit = TextUnit::line;
  /// JSON: the rows are the list under this key of the top-level object.
  std::optional<std::string> field = {};
  /// JSON and CSV: up to so many rows that cannot be read are left out and reported; one more is an
  /// error.
  int64_t skip_bad_rows = 0;
  /// Which part of a folder that holds several splits; may be left empty when it holds one.
  std::string split = {};
  /// CSV: what parts the fields ("\t" for .tsv).
  std::optional<char> delimiter = {};
  /// Token files: ids per row.
  int64_t block_size = 1024;
  /// An empty file is an error unless this is set.
  bool allow_empty = false;
  /// Threads that parse; 0: one per core, at most 8.
  int64_t threads = 0;
  /// Parquet and compressed files above this size are unpacked into a temporary file, not into
  /// memory.
  int64_t in_memory_limit = int64_t{2} << 30;
  /// Where those temporary files lie (they have no name and vanish with the process); empty: the
  /// system's place.
  std::filesystem::path temporary_dir = {};
  /// Text, JSON and CSV: a row of more bytes is an error (G-SRC-19), and no more than this is kept
  /// in memory while its end is looked for.
  int64_t max_row_bytes = int64_t{256} << 20;
  /// A file that is compressed, or packed as Parquet is, may grow to this many times its size when
  /// it is opened, and in any case to 256 MiB. More is an error (G-SRC-20). Streams of text are
  /// not bound by it: they hold one row at a time.
  int64_t max_expansion = 100;
};

/// Opens data files for access in any order.
///
/// | extension | read as |
/// |---|---|
/// | .parquet | read into memory (mapped from a temporary file above `in_memory_limit`) |
/// | .arrow, folder of `save_to_disk` | memory-mapped; IPC file and stream format |
/// | .csv, .tsv | header row, types inferred as pandas does |
/// | .jsonl, .json | one object per line, an array of objects, an array of strings (column `text`),
/// or `field` | | .txt, .text, .md | `text_unit` and `keep_linebreaks` | | .bin | token windows of
/// `block_size` (token_file.h) |
///
/// `.gz` and `.zst` after a text form are unpacked. Lists of bool are given as lists of int (0 and
/// 1). A key that some JSON rows lack is null there; nested structs stay as written. Rows are
/// checked now, so that reading one later does not fail.
///
/// Throws G-SRC-1 (no such file), G-SRC-2 (format not known), G-SRC-3 (no rows), G-SRC-4 (a row
/// that cannot be read, with file and line), G-SRC-6 (column missing), G-SRC-8 (file damaged),
/// G-SRC-9 (built without Arrow), G-SRC-10 (folder or split), G-SRC-19 and G-SRC-20 (a limit of
/// `LoadOptions`). Rows are read with several threads at once safely. A file that is cut short
/// afterwards gives G-SRC-11 when it is met.
///
/// The batches of an Arrow file are checked in full when a row of them is first read: a damaged one
/// gives G-SRC-8, and never bytes of another place.
std::shared_ptr<TableDataset> load_dataset(const DataFiles& files, const LoadOptions& options = {});

/// Opens the same files for reading from front to back in little memory.
///
/// `save_state` holds the place in the file (byte, row group and row); `load_state` goes there
/// without parsing what came before. (A compressed file must be unpacked again up to that place, a
/// Parquet row group decoded.) A row that cannot be read is an error when it is met. Throws
/// G-SRC-15 when a state belongs to other files.
std::shared_ptr<IterableDataset> stream_dataset(const DataFiles& files,
                                                const LoadOptions& options = {});

/// Any map-style data set read from front to back, giving back the memory of rows of a mapped file
/// that were passed. Its state is the row number, and is refused (G-SRC-15) when the number of rows
/// has changed. It cannot be sharded by source; `as_stream` (streams.h) can.
std::shared_ptr<IterableDataset> stream_of(std::shared_ptr<const Dataset> dataset);

/// The files that `files` and `options` stand for, in reading order. Throws as `load_dataset`.
std::vector<std::filesystem::path> resolve_data_files(const DataFiles& files,
                                                      const LoadOptions& options = {});

/// Whether Arrow, Parquet, CSV and .zst files can be read by this build.
bool arrow_available();

}  // namespace gradus
