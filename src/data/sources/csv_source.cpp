#ifdef GRADUS_WITH_ARROW

#include <arrow/array.h>
#include <arrow/csv/api.h>
#include <arrow/io/file.h>
#include <arrow/io/memory.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "data/sources/arrow_table.h"
#include "data/sources/byte_stream.h"
#include "data/sources/file_rows.h"
#include "data/sources/source_errors.h"

namespace gradus::sources {
namespace fs = std::filesystem;
namespace {

// What pandas takes as missing.
const std::vector<std::string> kMissing = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
                                           "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"};

struct CsvPlan {
  fs::path path = {};
  char delimiter = ',';
  std::vector<std::string> names = {};  // empty: the first row holds them
  std::unordered_map<std::string, std::shared_ptr<arrow::DataType>> types = {};
  int64_t first_line = 1;
};

bool is_known(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::NA: case arrow::Type::INT64: case arrow::Type::BOOL: case arrow::Type::DOUBLE: case arrow::Type::STRING: return true;
    default: return false;
  }
}

std::shared_ptr<arrow::Table> parse(std::shared_ptr<arrow::io::InputStream> input, const CsvPlan& plan, BadRows& bad_rows) {
  auto read = arrow::csv::ReadOptions::Defaults();
  read.use_threads = false;  // so that bad rows have a number
  read.block_size = 4 << 20;
  read.column_names = plan.names;
  auto parsing = arrow::csv::ParseOptions::Defaults();
  parsing.delimiter = plan.delimiter;
  parsing.newlines_in_values = true;
  parsing.pad_short_rows = true;
  std::vector<Error> bad;
  parsing.invalid_row_handler = [&](const arrow::csv::InvalidRow& row) {
    const auto line = row.number > 0 ? plan.first_line + row.number - 1 : 0;
    bad.push_back(bad_row(plan.path, line, fmt::format("expected {} fields, found {}", row.expected_columns, row.actual_columns), row.text));
    return bad_rows.skipped + int64_t(bad.size()) > bad_rows.allowed ? arrow::csv::InvalidRowResult::Error : arrow::csv::InvalidRowResult::Skip;
  };
  auto convert = arrow::csv::ConvertOptions::Defaults();
  convert.null_values = kMissing;
  convert.strings_can_be_null = true;
  convert.true_values = {"true", "True", "TRUE"};
  convert.false_values = {"false", "False", "FALSE"};
  convert.column_types = plan.types;
  auto reader = take(arrow::csv::TableReader::Make(arrow::io::default_io_context(), std::move(input), read, parsing, convert), plan.path);
  auto table = reader->Read();
  for (const auto& error : bad) bad_rows.skip(error);
  return take(std::move(table), plan.path);
}

// Dates and times stay text, as with pandas; text that is not UTF-8 is refused.
bool keep_text(const arrow::Schema& schema, CsvPlan& plan) {
  bool changed = false;
  for (const auto& field : schema.fields()) {
    if (field->type()->id() == arrow::Type::BINARY) throw damaged(plan.path, fmt::format("column \"{}\" is not UTF-8", field->name()), "Convert the file to UTF-8.");
    if (is_known(*field->type())) continue;
    plan.types[field->name()] = arrow::utf8();
    changed = true;
  }
  return changed;
}

// An integer column with gaps is one of floats in pandas.
void ints_with_gaps(const arrow::Table& table, ArrowColumns& columns) {
  for (auto& info : columns.infos) {
    const auto column = table.GetColumnByName(info.name);
    if (info.kind == ColumnKind::integer && column->null_count() > 0) info.kind = ColumnKind::number;
  }
}

using MakeInput = std::function<std::shared_ptr<arrow::io::InputStream>()>;
std::shared_ptr<arrow::Table> parse_inferred(const MakeInput& input, CsvPlan& plan, BadRows& bad_rows) {
  BadRows first = bad_rows;
  auto table = parse(input(), plan, first);
  if (keep_text(*table->schema(), plan)) {
    first = bad_rows;
    first.silent = true;  // they were reported
    table = parse(input(), plan, first);
  }
  bad_rows.skipped = first.skipped;
  return table;
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

std::shared_ptr<arrow::io::InputStream> whole_file(const TextBytes& bytes) {
  return std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(bytes.read(0, bytes.size())));
}

// Rows from blocks of whole lines; what the columns are is decided by the first block.
class CsvRows : public FileRows {
 public:
  CsvRows(const SourceFile& source, const LoadOptions& options, std::shared_ptr<BadRows> bad_rows)
      : source_(source), bad_rows_(std::move(bad_rows)), plan_{.path = source.path, .delimiter = source.delimiter}, reader_(open_stream(source), 1 << 20, /*quoted=*/true) {
    reader_.skip_mark = true;
    auto block = reader_.next();
    if (!block) return;
    BadRows ignored{.allowed = std::numeric_limits<int64_t>::max(), .silent = true};
    CsvPlan plan = plan_;
    const auto table = parse_inferred([&] { return std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(block->bytes)); }, plan, ignored);
    for (const auto& field : table->schema()->fields()) {
      if (field->type()->id() != arrow::Type::NA) plan.types[field->name()] = field->type();
      plan.names.push_back(field->name());
    }
    columns_ = ArrowColumns::of(*table->schema(), options.columns, source.path);
    ints_with_gaps(*table, columns_);
    const auto header = line_after_header(block->bytes);
    first_ = {block->offset + int64_t(header), 1 + std::count(block->bytes.begin(), block->bytes.begin() + int64_t(header), '\n')};
    plan_ = std::move(plan);
    reader_.seek(first_.offset, first_.line);
  }
  std::optional<Example> next() override {
    while (batch_ == nullptr || row_ == batch_->num_rows())
      if (!next_block()) return std::nullopt;
    Example example;
    for (size_t i = 0; i < arrays_.size(); ++i) example.set(columns_.infos[i].name, columns_.read(i, *arrays_[i], row_));
    ++row_;
    return example;
  }
  std::vector<std::string> column_names() const override { return columns_.names(); }
  nlohmann::json position() const override { return {{"offset", place_.offset}, {"line", place_.line}, {"row", row_}}; }
  void seek(const nlohmann::json& position) override {
    place_ = {position.at("offset").get<int64_t>(), position.at("line").get<int64_t>()};
    const auto row = position.at("row").get<int64_t>();
    batch_.reset();
    row_ = 0;
    if (place_.offset == 0) place_ = first_;
    reader_.seek(place_.offset, place_.line);
    if (row > 0 && (!next_block() || batch_->num_rows() < row)) throw foreign_state(fmt::format("{} has other rows than before", source_.path.string()));
    row_ = row;
  }

 private:
  struct Place {
    int64_t offset = 0, line = 1;
  };
  static size_t line_after_header(const std::string& bytes) {
    bool quoted = false, blank = true;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == '"') quoted = !quoted;
      if (bytes[i] == '\n' && !quoted && !blank) return i + 1;
      if (bytes[i] != '\n' && bytes[i] != '\r') blank = false;
    }
    return bytes.size();
  }
  bool next_block() {
    const auto block = reader_.next();
    batch_.reset();
    row_ = 0;
    if (!block) return false;
    place_ = {block->offset, block->first_line};
    plan_.first_line = block->first_line;
    if (block->bytes.find_first_not_of("\r\n") == std::string::npos) return true;
    const auto table = parse(std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(block->bytes)), plan_, *bad_rows_);
    batch_ = take(table->CombineChunksToBatch(), plan_.path);
    arrays_ = columns_.pick(*batch_);
    return true;
  }

  SourceFile source_;
  std::shared_ptr<BadRows> bad_rows_;
  CsvPlan plan_;
  BlockReader reader_;
  ArrowColumns columns_;
  Place first_, place_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::vector<std::shared_ptr<arrow::Array>> arrays_;
  int64_t row_ = 0;
};

}  // namespace

std::shared_ptr<ArrowTable> load_csv(const std::vector<SourceFile>& files, const LoadOptions& options) {
  std::shared_ptr<ArrowTable> rows;
  BadRows bad_rows{.allowed = options.skip_bad_rows};
  for (const auto& file : files) {
    const TextBytes bytes(file, options);
    if (bytes.size() == 0) continue;
    CsvPlan plan{.path = file.path, .delimiter = file.delimiter};
    const auto table = parse_inferred([&] { return whole_file(bytes); }, plan, bad_rows);
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

std::unique_ptr<FileRows> open_csv_rows(const SourceFile& file, const LoadOptions& options, std::shared_ptr<BadRows> bad_rows) {
  return std::make_unique<CsvRows>(file, options, std::move(bad_rows));
}

}  // namespace gradus::sources

#endif
