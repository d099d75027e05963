#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/core/memory.h>
#include <gradus/data/load_dataset.h>
#include <gradus/data/token_file.h>

#include <nlohmann/json.hpp>

#include "data/required.h"
#include "data/sources/arrow_table.h"
#include "data/sources/csv_source.h"
#include "data/sources/file_rows.h"
#include "data/sources/json_row.h"
#include "data/sources/row_schema.h"
#include "data/sources/source_errors.h"
#include "data/sources/text_rows.h"

namespace gradus {
namespace sources {

void BadRows::skip(const Error& error) {
  if (++skipped > allowed) throw allowed > 0 ? too_many_bad_rows(error, allowed) : error;
  if (!silent) log_warning("left out: " + error.message());
}

#ifndef GRADUS_WITH_ARROW
std::unique_ptr<FileRows> open_parquet_rows(const SourceFile& file, const LoadOptions&) {
  throw needs_arrow("reading " + file.path.string());
}
#endif

namespace {

constexpr size_t kStreamBlock = size_t{1} << 20;

// Lines of text or JSON, a block at a time.
class LineRows : public FileRows {
 public:
  LineRows(const SourceFile& file, const LoadOptions& options, std::shared_ptr<BadRows> bad_rows,
           std::shared_ptr<const RowSchema> schema)
      : path_(file.path),
        options_(options),
        bad_rows_(std::move(bad_rows)),
        schema_(std::move(schema)),
        reader_(open_stream(file), kStreamBlock, file.path, options.max_row_bytes) {
    reader_.skip_mark = is_json();
  }
  std::optional<Example> next() override {
    while (true) {
      while (!block_ || at_ >= block_->bytes.size()) {
        block_ = reader_.next();
        if (!block_) return std::nullopt;
        at_ = 0;
        line_ = block_->first_line;
      }
      const auto end = line_end(block_->bytes, at_, !is_json());
      const auto raw = std::string_view(block_->bytes).substr(at_, end - at_);
      const auto line = line_++;
      if (int64_t(raw.size()) > options_.max_row_bytes)
        throw row_too_long(path_, "line " + with_commas(line), options_.max_row_bytes);
      at_ = end;
      if (is_json() && is_blank(raw)) continue;
      if (auto row = parse(raw, line)) return row;
    }
  }
  nlohmann::json position() const override {
    if (!block_) return {{"offset", start_.first}, {"line", start_.second}};
    return {{"offset", block_->offset + int64_t(at_)}, {"line", line_}};
  }
  void seek(const nlohmann::json& position) override {
    start_ = {position.at("offset").get<int64_t>(), position.at("line").get<int64_t>()};
    block_.reset();
    reader_.seek(start_.first, start_.second);
  }

 private:
  bool is_json() const { return schema_ != nullptr; }
  std::optional<Example> parse(std::string_view raw, int64_t line) {
    try {
      if (is_json())
        return schema_->shape(parse_json_row(raw, options_.columns), options_.columns.empty());
      if (const auto at = invalid_utf8(raw))
        throw NotARow(fmt::format("byte {} of the row is not UTF-8", *at), *at);
      return text_row(raw, options_);
    } catch (const NotARow& error) {
      const auto reason =
          is_json() ? fmt::format("not a JSON object ({})", error.what()) : error.what();
      const auto shown = is_json() ? raw.substr(0, raw.find_last_not_of("\r\n") + 1)
                                   : raw.substr(0, error.position);
      bad_rows_->skip(bad_row(path_, line, reason, shown));
      return std::nullopt;
    }
  }

  std::filesystem::path path_;
  LoadOptions options_;
  std::shared_ptr<BadRows> bad_rows_;
  std::shared_ptr<const RowSchema> schema_;
  BlockReader reader_;
  std::optional<BlockReader::Block> block_;
  size_t at_ = 0;
  int64_t line_ = 1;
  std::pair<int64_t, int64_t> start_{0, 1};
};

// The columns of the rows in a file's first block; bad rows are met again when they are read.
std::shared_ptr<const RowSchema> first_schema(const SourceFile& file, const LoadOptions& options) {
  auto schema = std::make_shared<RowSchema>();
  BlockReader reader(open_stream(file), kStreamBlock, file.path, options.max_row_bytes);
  reader.skip_mark = true;
  if (const auto block = reader.next()) {
    for (size_t at = 0; at < block->bytes.size();) {
      const auto end = line_end(block->bytes, at, false);
      const auto raw = std::string_view(block->bytes).substr(at, end - at);
      at = end;
      if (is_blank(raw)) continue;
      try {
        schema->add(parse_json_row(raw, {}));
      } catch (const NotARow&) {
      }
    }
  }
  schema->choose(options.columns, file.path.string());
  return schema;
}

// One file after the other.
class FileStream : public IterableDataset {
 public:
  FileStream(std::vector<SourceFile> files, LoadOptions options)
      : files_(std::move(files)),
        options_(std::move(options)),
        bad_rows_(std::make_shared<BadRows>(BadRows{.allowed = options_.skip_bad_rows})) {
    const auto format = files_.front().format;
    if (format == Format::json || format == Format::json_lines)
      schema_ = first_schema(files_.front(), options_);
    open(0);
    columns_ = rows_->column_names();
  }

  std::optional<Example> next() override {
    while (rows_ != nullptr) {
      if (auto row = next_of_file()) {
        given_ = true;
        return row;
      }
      if (file_ + 1 < files_.size()) {
        open(file_ + 1);
      } else {
        rows_.reset();
        ++file_;
      }
    }
    if (!given_ && !options_.allow_empty) throw no_rows();
    return std::nullopt;
  }

  void reset(int64_t) override {
    bad_rows_->skipped = 0;
    given_ = false;
    open(0);
  }

  nlohmann::json save_state() const override {
    return {{"version", 1},
            {"files", int64_t(files_.size())},
            {"file", int64_t(file_)},
            {"name", file_ < files_.size() ? files_[file_].path.filename().string() : ""},
            {"at", rows_ != nullptr ? rows_->position() : nlohmann::json()},
            {"skipped", bad_rows_->skipped}};
  }

  void load_state(const nlohmann::json& state) override {
    try {
      if (state.at("version").get<int64_t>() != 1)
        throw foreign_state("the state was written by a newer gradus");
      const auto file = state.at("file").get<size_t>();
      const auto count = state.at("files").get<size_t>();
      if (count != files_.size())
        throw foreign_state(
            fmt::format("it was saved with {} files, now there are {}", count, files_.size()));
      if (file > files_.size())
        throw foreign_state(fmt::format("there is no file number {}", file));
      bad_rows_->skipped = state.at("skipped").get<int64_t>();
      given_ = true;
      if (file == files_.size()) {
        file_ = file;
        rows_.reset();
        return;
      }
      const auto name = state.at("name").get<std::string>();
      if (name != files_[file].path.filename().string())
        throw foreign_state(fmt::format("file number {} was {}, now it is {}", file, name,
                                        files_[file].path.filename().string()));
      open(file);
      rows_->seek(state.at("at"));
    } catch (const nlohmann::json::exception& error) {
      throw foreign_state(std::string("it is not a state of this reader: ") + error.what());
    }
  }

  std::vector<std::string> column_names() const override {
    if (schema_ == nullptr)
      return files_.front().format == Format::text ? std::vector<std::string>{"text"} : columns_;
    std::vector<std::string> names;
    for (const auto& column : schema_->columns()) names.push_back(column.name);
    return names;
  }

 private:
  std::optional<Example> next_of_file() {
    return name_memory_errors([&] { return "reading " + files_[file_].path.string(); },
                              [&] { return rows_->next(); });
  }
  Error no_rows() const {
    return {"G-SRC-3", ErrorKind::data,
            fmt::format("{} holds no rows", files_.front().path.string()),
            "Check that it is the right file."};
  }
  // Throws without a change: the next call fails in the same way, it does not take the data for
  // ended.
  void open(size_t file) {
    const auto& source = files_[file];
    switch (source.format) {
      case Format::parquet: rows_ = open_parquet_rows(source, options_); break;
      case Format::csv: rows_ = open_csv_rows(source, options_, bad_rows_); break;
      default: rows_ = std::make_unique<LineRows>(source, options_, bad_rows_, schema_);
    }
    file_ = file;
  }

  std::vector<SourceFile> files_;
  LoadOptions options_;
  std::shared_ptr<BadRows> bad_rows_;
  std::shared_ptr<const RowSchema> schema_;
  std::unique_ptr<FileRows> rows_;
  size_t file_ = 0;
  bool given_ = false;
  std::vector<std::string> columns_;
};

class DatasetStream : public IterableDataset {
 public:
  explicit DatasetStream(std::shared_ptr<const Dataset> dataset) : dataset_(std::move(dataset)) {}
  std::optional<Example> next() override {
    if (row_ >= dataset_->size()) return std::nullopt;
#ifdef GRADUS_WITH_ARROW
    if (row_ % 256 == 255)
      if (const auto* mapped = dynamic_cast<const MappedRows*>(dataset_.get()))
        mapped->release_pages(row_);
#endif
    return dataset_->get(row_++);
  }
  void reset(int64_t) override { row_ = 0; }
  nlohmann::json save_state() const override { return {{"row", row_}, {"rows", dataset_->size()}}; }
  void load_state(const nlohmann::json& state) override {
    try {
      const auto rows = state.at("rows").get<int64_t>();
      if (rows != dataset_->size())
        throw foreign_state(
            fmt::format("it was saved with {} rows, now there are {}", rows, dataset_->size()));
      row_ = std::clamp<int64_t>(state.at("row").get<int64_t>(), 0, rows);
    } catch (const nlohmann::json::exception& error) {
      throw foreign_state(std::string("it is not a state of this reader: ") + error.what());
    }
  }
  std::vector<std::string> column_names() const override { return dataset_->column_names(); }
  std::optional<int64_t> size() const override { return dataset_->size(); }

 private:
  std::shared_ptr<const Dataset> dataset_;
  int64_t row_ = 0;
};

bool needs_index(const SourceFile& file, const LoadOptions& options) {
  if (file.format == Format::arrow || file.format == Format::tokens) return true;
  if (file.format == Format::text) return options.text_unit != TextUnit::line;
  if (file.format != Format::json && file.format != Format::json_lines) return false;
  return options.field.has_value() || !has_json_lines(open_stream(file), file.format);
}

}  // namespace
}  // namespace sources

std::shared_ptr<IterableDataset> stream_of(std::shared_ptr<const Dataset> dataset) {
  return std::make_shared<sources::DatasetStream>(data::required(std::move(dataset), "stream_of"));
}

std::shared_ptr<IterableDataset> stream_dataset(const DataFiles& given,
                                                const LoadOptions& options) {
  auto files = sources::resolve_files(given, options);
  for (const auto& file : files)
    if (sources::needs_index(file, options)) return stream_of(load_dataset(given, options));
  return std::make_shared<sources::FileStream>(std::move(files), options);
}

}  // namespace gradus
