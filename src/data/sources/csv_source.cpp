#include "data/sources/csv_source.h"

#ifdef GRADUS_WITH_ARROW

#include <arrow/array.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <fmt/format.h>
#include <gradus/core/error.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "data/sources/arrow_table.h"
#include "data/sources/csv_blocks.h"
#include "data/sources/csv_columns.h"
#include "data/sources/source_errors.h"

namespace gradus::sources {
namespace fs = std::filesystem;
namespace {

// For rows that are met a second time.
BadRows met_before() { return {.allowed = std::numeric_limits<int64_t>::max(), .silent = true}; }

// All rows of a file. Where cells late in the file give a column another type than it had, the
// blocks before are read once more: that takes less memory than keeping their text.
std::shared_ptr<arrow::Table> read_table(CsvBlocks& blocks, const fs::path& file,
                                         BadRows& bad_rows) {
  auto columns = make_csv_columns(blocks.names(), {}, file);
  while (const auto block = blocks.next(bad_rows))
    for (auto& column : columns) column.add(*block->rows);
  while (true) {
    size_t stale = 0;
    for (const auto& column : columns) stale = std::max(stale, column.stale_blocks());
    if (stale == 0) return csv_table(columns);
    auto known = met_before();
    blocks.seek(blocks.first());
    for (size_t i = 0; i < stale; ++i) {
      const auto block = blocks.next(known);
      if (!block) break;
      for (auto& column : columns) column.redo(i, *block->rows);
    }
  }
}

// An integer column with gaps is one of floats in pandas.
void ints_with_gaps(const arrow::Table& table, ArrowColumns& columns) {
  for (auto& info : columns.infos) {
    const auto column = table.GetColumnByName(info.name);
    if (info.kind == ColumnKind::integer && column->null_count() > 0)
      info.kind = ColumnKind::number;
  }
}

void append_table(ArrowTable& rows, const arrow::Table& table, const fs::path& file) {
  arrow::TableBatchReader batches(table);
  std::shared_ptr<arrow::RecordBatch> batch;
  while (true) {
    check_arrow(batches.ReadNext(&batch), file);
    if (batch == nullptr) return;
    rows.append(*batch, file);
  }
}

// Rows from front to back; what the columns are is decided by the first block.
class CsvRows : public FileRows {
 public:
  CsvRows(const SourceFile& source, const LoadOptions& options, std::shared_ptr<BadRows> bad_rows,
          size_t block_size)
      : path_(source.path),
        bad_rows_(std::move(bad_rows)),
        blocks_(open_stream(source), source.path, source.delimiter, block_size,
                options.max_row_bytes) {
    if (blocks_.names().empty()) return;
    auto known = met_before();
    auto columns = make_csv_columns(blocks_.names(), {}, path_);
    if (const auto block = blocks_.next(known))
      for (auto& column : columns) column.add(*block->rows);
    const auto table = csv_table(columns);
    for (const auto& field : table->schema()->fields())
      types_.push_back(field->type()->id() == arrow::Type::NA ? nullptr : field->type());
    columns_ = ArrowColumns::of(*table->schema(), options.columns, path_);
    ints_with_gaps(*table, columns_);
    blocks_.seek(blocks_.first());
  }
  std::optional<Example> next() override {
    while (batch_ == nullptr || row_ == batch_->num_rows())
      if (!next_block()) return std::nullopt;
    Example example;
    for (size_t i = 0; i < arrays_.size(); ++i)
      example.set(columns_.infos[i].name, columns_.read(i, *arrays_[i], row_));
    ++row_;
    return example;
  }
  std::vector<std::string> column_names() const override { return columns_.names(); }
  nlohmann::json position() const override {
    return {{"offset", place_.offset}, {"line", place_.line}, {"row", row_}};
  }
  void seek(const nlohmann::json& position) override {
    place_ = {position.at("offset").get<int64_t>(), position.at("line").get<int64_t>()};
    auto row = position.at("row").get<int64_t>();
    batch_.reset();
    row_ = 0;
    if (place_.offset == 0) place_ = blocks_.first();
    blocks_.seek(place_);
    for (; row > 0; row -= row_) {
      if (!next_block())
        throw foreign_state(fmt::format("{} has other rows than before", path_.string()));
      row_ = batch_ != nullptr ? std::min(row, batch_->num_rows()) : 0;
    }
  }

 private:
  bool next_block() {
    batch_.reset();
    row_ = 0;
    const auto block = blocks_.next(*bad_rows_);
    if (!block) return false;
    place_ = block->begin;
    if (block->rows->num_rows() == 0) return true;
    auto columns = make_csv_columns(blocks_.names(), types_, path_);
    for (auto& column : columns) column.add(*block->rows);
    batch_ = take(csv_table(columns)->CombineChunksToBatch(), path_);
    arrays_ = columns_.pick(*batch_);
    return true;
  }

  fs::path path_;
  std::shared_ptr<BadRows> bad_rows_;
  CsvBlocks blocks_;
  std::vector<std::shared_ptr<arrow::DataType>> types_;  // null: not yet known
  ArrowColumns columns_;
  CsvBlocks::Place place_;  // of the block that batch_ was made from
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::vector<std::shared_ptr<arrow::Array>> arrays_;
  int64_t row_ = 0;
};

}  // namespace

std::shared_ptr<TableDataset> load_csv(const std::vector<SourceFile>& files,
                                       const LoadOptions& options, size_t block_size) {
  std::shared_ptr<ArrowTable> rows;
  BadRows bad_rows{.allowed = options.skip_bad_rows};
  for (const auto& file : files) {
    const TextBytes bytes(file, options);
    if (bytes.size() == 0) continue;
    CsvBlocks blocks(bytes.stream(), file.path, file.delimiter, block_size, options.max_row_bytes);
    if (blocks.names().empty()) throw damaged(file.path, "Empty CSV file");
    const auto table = read_table(blocks, file.path, bad_rows);
    auto columns = ArrowColumns::of(*table->schema(), options.columns, file.path);
    ints_with_gaps(*table, columns);
    if (rows == nullptr)
      rows = std::make_shared<ArrowTable>(std::move(columns));
    else
      rows->arrow_columns().merge(*table->schema(), file.path);
    append_table(*rows, *table, file.path);
  }
  if (rows != nullptr) rows->set_skipped(bad_rows.skipped);
  return rows != nullptr ? rows : std::make_shared<ArrowTable>(ArrowColumns{});
}

std::unique_ptr<FileRows> open_csv_rows(const SourceFile& file, const LoadOptions& options,
                                        std::shared_ptr<BadRows> bad_rows, size_t block_size) {
  return std::make_unique<CsvRows>(file, options, std::move(bad_rows), block_size);
}

}  // namespace gradus::sources

#else

#include "data/sources/source_errors.h"

namespace gradus::sources {

std::shared_ptr<TableDataset> load_csv(const std::vector<SourceFile>& files, const LoadOptions&,
                                       size_t) {
  throw needs_arrow("reading " + files.front().path.string());
}
std::unique_ptr<FileRows> open_csv_rows(const SourceFile& file, const LoadOptions&,
                                        std::shared_ptr<BadRows>, size_t) {
  throw needs_arrow("reading " + file.path.string());
}

}  // namespace gradus::sources

#endif
