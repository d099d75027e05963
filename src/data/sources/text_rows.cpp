#include "data/sources/text_rows.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include <limits>

#include "data/sources/json_row.h"
#include "data/sources/json_scan.h"
#include "data/sources/ordered_jobs.h"
#include "data/sources/row_schema.h"
#include "data/sources/source_errors.h"

namespace gradus::sources {
namespace {

constexpr size_t kTextBlock = size_t{4} << 20;
constexpr std::string_view kMark = "\xef\xbb\xbf";

// What is read at a time: no more than there is.
size_t text_block(const TextBytes& bytes) {
  return std::clamp<size_t>(size_t(bytes.size()), 1, kTextBlock);
}

struct Record {
  uint64_t start;
  uint32_t length;
} __attribute__((packed));

struct IndexedFile {
  std::shared_ptr<const TextBytes> bytes;
  std::vector<Record> records;
};

void append(std::vector<Record>& records, int64_t start, int64_t end, const TextBytes& bytes,
            const LoadOptions& options) {
  constexpr int64_t kLongest = std::numeric_limits<uint32_t>::max();
  if (end - start > std::min(options.max_row_bytes, kLongest))
    throw row_too_long(bytes.path(), "the row at byte " + with_commas(start),
                       std::min(options.max_row_bytes, kLongest));
  records.push_back({uint64_t(start), uint32_t(end - start)});
}

std::string read_record(const IndexedFile& file, size_t row) {
  const auto record = file.records[row];
  return file.bytes->read(int64_t(record.start), record.length);
}

// Numbers of lines, asked for in the order of the file so that it is read once.
class LineCounter {
 public:
  explicit LineCounter(const TextBytes& bytes) : bytes_(bytes) {}
  int64_t line_at(int64_t offset) {
    while (at_ < offset) {
      const auto part = bytes_.read(at_, std::min(int64_t(kTextBlock), offset - at_));
      line_ += std::count(part.begin(), part.end(), '\n');
      at_ += int64_t(part.size());
    }
    return line_;
  }

 private:
  const TextBytes& bytes_;
  int64_t at_ = 0, line_ = 1;
};

// Rows of several text files; `decode` makes one of its raw bytes.
class RecordDataset : public TableDataset {
 public:
  using Decode = std::function<Example(std::string_view)>;
  RecordDataset(std::vector<IndexedFile> files, std::vector<ColumnInfo> columns, Decode decode,
                int64_t skipped)
      : files_(std::move(files)),
        columns_(std::move(columns)),
        decode_(std::move(decode)),
        skipped_(skipped) {
    for (const auto& file : files_)
      first_rows_.push_back(first_rows_.back() + int64_t(file.records.size()));
  }
  int64_t size() const override { return first_rows_.back(); }
  const std::vector<ColumnInfo>& columns() const override { return columns_; }
  int64_t skipped_rows() const override { return skipped_; }
  Example get(int64_t index) const override {
    if (index < 0 || index >= size()) throw row_out_of_range(index, size());
    const auto file = size_t(std::upper_bound(first_rows_.begin(), first_rows_.end(), index) -
                             first_rows_.begin() - 1);
    const auto row = size_t(index - first_rows_[file]);
    const auto raw = read_record(files_[file], row);
    try {
      return decode_(raw);
    } catch (const NotARow& error) {  // it could be read when the file was opened
      const auto& bytes = *files_[file].bytes;
      throw bad_row(bytes.path(),
                    LineCounter(bytes).line_at(int64_t(files_[file].records[row].start)),
                    std::string("changed since it was opened: ") + error.what(), raw);
    }
  }

 private:
  std::vector<IndexedFile> files_;
  std::vector<ColumnInfo> columns_;
  Decode decode_;
  int64_t skipped_;
  std::vector<int64_t> first_rows_{0};
};

BlockReader blocks_of(const TextBytes& bytes, const LoadOptions& options) {
  return {bytes.stream(), text_block(bytes), bytes.path(), options.max_row_bytes};
}

void index_lines(IndexedFile& file, const LoadOptions& options, bool universal, bool keep_blank) {
  auto reader = blocks_of(*file.bytes, options);
  reader.skip_mark = !keep_blank;
  while (const auto block = reader.next()) {
    for (size_t at = 0; at < block->bytes.size();) {
      const auto end = line_end(block->bytes, at, universal);
      if (keep_blank || !is_blank(std::string_view(block->bytes).substr(at, end - at)))
        append(file.records, block->offset + int64_t(at), block->offset + int64_t(end), *file.bytes,
               options);
      at = end;
    }
  }
}

// A paragraph ends with an empty line; it holds the line breaks before it but the last two.
void index_paragraphs(IndexedFile& file, const LoadOptions& options) {
  auto reader = blocks_of(*file.bytes, options);
  int64_t start = 0;
  bool empty = true;
  const auto close = [&](int64_t end) {
    if (!empty) append(file.records, start, end, *file.bytes, options);
    start = end;
    empty = true;
  };
  int64_t position = 0;
  int64_t lines = 0;  // of the paragraph so far
  while (const auto block = reader.next()) {
    for (size_t at = 0; at < block->bytes.size();) {
      const auto end = line_end(block->bytes, at, true);
      const char first = block->bytes[at];
      const bool blank = first == '\n' || first == '\r';
      position = block->offset + int64_t(end);
      if (blank && lines > 0) {
        close(position);
        lines = 0;
      } else {
        if (!blank) empty = false;
        ++lines;
      }
      at = end;
    }
  }
  if (position > start) {
    empty = false;
    close(position);
  }
}

void index_document(IndexedFile& file, const LoadOptions& options) {
  JsonScanner scanner(options.field, [&](int64_t start, int64_t end) {
    append(file.records, start, end, *file.bytes, options);
  });
  const auto stream = file.bytes->stream();
  std::string buffer(text_block(*file.bytes), '\0');
  bool first = true;
  while (const auto n = stream->read(buffer.data(), buffer.size())) {
    std::string_view part(buffer.data(), n);
    if (std::exchange(first, false) && part.starts_with(kMark))
      std::fill_n(buffer.begin(), kMark.size(), ' ');
    scanner.feed(part);
  }
  if (const auto trouble = scanner.finish())
    throw damaged(file.bytes->path(), "not a JSON document: " + *trouble,
                  "Repair the file; with one JSON object per line, name it .jsonl.");
}

// What a check of some rows found.
struct Findings {
  struct BadRow {
    size_t row;
    int64_t offset;  // of the trouble in the file
    std::string reason, found;
  };
  RowSchema schema;
  std::vector<BadRow> bad;
};

// Runs `check` on every row, in parallel, and takes out the bad ones, of which `options` says how
// many may be.
using Check = std::function<void(const IndexedFile&, size_t row, Findings&)>;
RowSchema check_rows(std::vector<IndexedFile>& files, const Check& check,
                     const LoadOptions& options, int64_t& skipped) {
  constexpr size_t kRows = 2048;
  RowSchema schema;
  for (auto& file : files) {
    size_t next_row = 0;
    std::vector<size_t> bad_rows;
    LineCounter lines(*file.bytes);
    run_in_order(thread_count(options.threads), [&]() -> std::optional<OrderedJob> {
      if (next_row >= file.records.size()) return std::nullopt;
      const auto first = next_row;
      const auto last = next_row = std::min(first + kRows, file.records.size());
      auto found = std::make_shared<Findings>();
      return OrderedJob{
          [=, &file, &check] {
            for (auto row = first; row < last; ++row) check(file, row, *found);
          },
          [=, &file, &lines, &schema, &options, &skipped, &bad_rows] {
            schema.add(found->schema);
            for (const auto& [row, offset, reason, shown] : found->bad) {
              const auto error = bad_row(file.bytes->path(), lines.line_at(offset), reason, shown);
              if (++skipped > options.skip_bad_rows)
                throw options.skip_bad_rows > 0 ? too_many_bad_rows(error, options.skip_bad_rows)
                                                : error;
              log_warning("left out: " + error.message());
              bad_rows.push_back(row);
            }
          }};
    });
    size_t kept = 0, bad = 0;
    for (size_t row = 0; row < file.records.size() && !bad_rows.empty(); ++row) {
      if (bad < bad_rows.size() && bad_rows[bad] == row)
        ++bad;
      else
        file.records[kept++] = file.records[row];
    }
    if (!bad_rows.empty()) file.records.resize(kept);
    file.records.shrink_to_fit();
  }
  return schema;
}

std::vector<IndexedFile> open_all(const std::vector<SourceFile>& files,
                                  const LoadOptions& options) {
  std::vector<IndexedFile> opened;
  for (const auto& file : files) opened.push_back({std::make_shared<TextBytes>(file, options), {}});
  return opened;
}

void check_text_row(const IndexedFile& file, size_t row, Findings& found) {
  const auto raw = read_record(file, row);
  const auto at = invalid_utf8(raw);
  if (!at) return;
  found.bad.push_back({row, int64_t(file.records[row].start + *at),
                       fmt::format("byte {} of the row is not UTF-8", *at),
                       raw.substr(0, std::min<size_t>(*at, 200))});
}

}  // namespace

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

size_t line_end(std::string_view bytes, size_t from, bool universal) {
  const auto found = universal ? bytes.find_first_of("\r\n", from) : bytes.find('\n', from);
  if (found == std::string_view::npos) return bytes.size();
  const bool pair = bytes[found] == '\r' && found + 1 < bytes.size() && bytes[found + 1] == '\n';
  return found + (pair ? 2 : 1);
}

Example text_row(std::string_view raw, const LoadOptions& options) {
  std::string text;
  text.reserve(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] == '\r' && i + 1 < raw.size() && raw[i + 1] == '\n') continue;
    text += raw[i] == '\r' ? '\n' : raw[i];
  }
  if (options.text_unit == TextUnit::line && !options.keep_linebreaks && text.ends_with('\n'))
    text.pop_back();
  if (options.text_unit == TextUnit::paragraph && text.ends_with("\n\n"))
    text.resize(text.size() - 2);
  return {{"text", Value(std::move(text))}};
}

std::shared_ptr<TableDataset> load_text(const std::vector<SourceFile>& files,
                                        const LoadOptions& options) {
  auto opened = open_all(files, options);
  for (auto& file : opened) {
    if (options.text_unit == TextUnit::line)
      index_lines(file, options, /*universal=*/true, /*keep_blank=*/true);
    else if (options.text_unit == TextUnit::paragraph)
      index_paragraphs(file, options);
    else
      append(file.records, 0, file.bytes->size(), *file.bytes, options);
  }
  int64_t skipped = 0;
  check_rows(opened, check_text_row, options, skipped);
  RowSchema schema;
  schema.add(Example{{"text", ""}});
  schema.choose(options.columns, files.front().path.string());
  auto columns = schema.columns();
  columns.front().stored_as = options.text_unit == TextUnit::line        ? "line"
                              : options.text_unit == TextUnit::paragraph ? "paragraph"
                                                                         : "document";
  return std::make_shared<RecordDataset>(
      std::move(opened), std::move(columns),
      [options](std::string_view raw) { return text_row(raw, options); }, skipped);
}

bool has_json_lines(std::unique_ptr<ByteStream> bytes, Format format) {
  // Is the first object spread over lines? Its line is not kept: a document may be one line of many
  // gigabytes.
  JsonScanner scanner(std::nullopt, [](int64_t, int64_t) {});
  std::string buffer(size_t{1} << 16, '\0');
  bool first = true, begun = false;
  while (const auto n = bytes->read(buffer.data(), buffer.size())) {
    std::string_view part(buffer.data(), n);
    if (std::exchange(first, false) && part.starts_with(kMark)) part.remove_prefix(kMark.size());
    if (!begun) {
      const auto start = part.find_first_not_of(" \t\r\n");
      if (start == std::string_view::npos) continue;
      part.remove_prefix(start);
      if (part.front() == '[') return false;
      if (format == Format::json_lines) return true;
      begun = true;
    }
    const auto end = part.find('\n');
    scanner.feed(part.substr(0, end));
    if (end != std::string_view::npos) break;
  }
  return !begun || !scanner.finish().has_value();
}

std::shared_ptr<TableDataset> load_json(const std::vector<SourceFile>& files,
                                        const LoadOptions& options) {
  auto opened = open_all(files, options);
  for (size_t i = 0; i < files.size(); ++i) {
    if (!options.field && has_json_lines(opened[i].bytes->stream(), files[i].format))
      index_lines(opened[i], options, /*universal=*/false, /*keep_blank=*/false);
    else
      index_document(opened[i], options);
  }
  const auto check = [](const IndexedFile& file, size_t row, Findings& found) {
    const auto raw = read_record(file, row);
    try {
      found.schema.add(parse_json_row(raw, {}));
    } catch (const NotARow& error) {
      const auto shown = std::min<size_t>(raw.find_last_not_of("\r\n") + 1, 200);
      found.bad.push_back({row, int64_t(file.records[row].start),
                           fmt::format("not a JSON object ({})", error.what()),
                           raw.substr(0, shown)});
    }
  };
  int64_t skipped = 0;
  auto schema = check_rows(opened, check, options, skipped);
  schema.choose(options.columns, files.front().path.string());
  auto columns = schema.columns();
  return std::make_shared<RecordDataset>(
      std::move(opened), std::move(columns),
      [schema = std::move(schema), wanted = options.columns](std::string_view raw) {
        return schema.shape(parse_json_row(raw, wanted));
      },
      skipped);
}

}  // namespace gradus::sources
