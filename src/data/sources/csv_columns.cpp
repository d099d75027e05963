#include "data/sources/csv_columns.h"

#ifdef GRADUS_WITH_ARROW

#include <arrow/array.h>
#include <arrow/array/util.h>
#include <arrow/csv/options.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <fmt/format.h>

#include <array>

#include "data/sources/arrow_cell.h"
#include "data/sources/source_errors.h"

namespace gradus::sources {
namespace {

// Tried in this order.
const std::array<std::shared_ptr<arrow::DataType>, 5>& csv_types() {
  static const std::array<std::shared_ptr<arrow::DataType>, 5> types = {
      arrow::null(), arrow::int64(), arrow::boolean(), arrow::float64(), arrow::utf8()};
  return types;
}

// Arrow's converters keep a reference to their options.
const arrow::csv::ConvertOptions& csv_conversion() {
  static const auto options = [] {
    auto conversion = arrow::csv::ConvertOptions::Defaults();
    // What pandas takes as missing.
    conversion.null_values = {"",     "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN",
                              "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL",
                              "NaN",  "None",   "n/a",      "nan",  "null"};
    conversion.strings_can_be_null = true;
    conversion.true_values = {"true", "True", "TRUE"};
    conversion.false_values = {"false", "False", "FALSE"};
    return conversion;
  }();
  return options;
}

// The converter for a type of `csv_types`. It keeps nothing of a column, and making one takes
// longer than to convert a few cells, so all columns of a thread share it.
const std::shared_ptr<arrow::csv::Converter>& csv_converter(const arrow::DataType& type,
                                                            const std::filesystem::path& file) {
  thread_local std::array<std::shared_ptr<arrow::csv::Converter>, 5> converters;
  size_t place = 0;
  while (csv_types()[place]->id() != type.id()) ++place;
  if (converters[place] == nullptr)
    converters[place] =
        take(arrow::csv::Converter::Make(csv_types()[place], csv_conversion()), file);
  return converters[place];
}

}  // namespace

CsvColumn::CsvColumn(std::string name, int32_t index, std::shared_ptr<arrow::DataType> type,
                     std::filesystem::path file)
    : name_(std::move(name)), index_(index), file_(std::move(file)), given_(type != nullptr) {
  converter_ = csv_converter(given_ ? *type : *csv_types().front(), file_);
}

void CsvColumn::add(const arrow::csv::BlockParser& rows) {
  auto array = convert(rows);
  blocks_.push_back({std::move(array), type_});
}

size_t CsvColumn::stale_blocks() const {
  for (size_t i = blocks_.size(); i > 0; --i)
    if (blocks_[i - 1].type != type_) return i;
  return 0;
}

void CsvColumn::redo(size_t block, const arrow::csv::BlockParser& rows) {
  if (block >= blocks_.size() || blocks_[block].type == type_) return;
  auto array = convert(rows);
  blocks_[block] = {std::move(array), type_};
}

std::shared_ptr<arrow::ChunkedArray> CsvColumn::finish() {
  if (not_utf8_)
    throw damaged(file_, fmt::format("column \"{}\" is not UTF-8", name_),
                  "Convert the file to UTF-8.");
  arrow::ArrayVector arrays;
  for (auto& block : blocks_) arrays.push_back(std::move(block.array));
  blocks_.clear();
  return std::make_shared<arrow::ChunkedArray>(std::move(arrays), converter_->type());
}

std::shared_ptr<arrow::Array> CsvColumn::convert(const arrow::csv::BlockParser& rows) {
  while (true) {
    if (not_utf8_)
      return take(arrow::MakeArrayOfNull(converter_->type(), rows.num_rows()),
                  file_);  // `finish` will say so
    auto array = converter_->Convert(rows, index_);
    if (array.ok()) return std::move(array).ValueUnsafe();
    if (given_ || !array.status().IsInvalid())
      check_arrow(
          array.status().WithMessage("In CSV column #", index_, ": ", array.status().message()),
          file_);
    widen();
  }
}

// The next type. Blocks of nulls alone need no second look at their rows.
void CsvColumn::widen() {
  if (type_ + 1 == csv_types().size()) {
    not_utf8_ = true;
    return;
  }
  ++type_;
  converter_ = csv_converter(*csv_types()[type_], file_);
  for (auto& block : blocks_)
    if (block.array->null_count() == block.array->length())
      block = {take(arrow::MakeArrayOfNull(converter_->type(), block.array->length()), file_),
               type_};
}

std::vector<CsvColumn> make_csv_columns(const std::vector<std::string>& names,
                                        const std::vector<std::shared_ptr<arrow::DataType>>& types,
                                        const std::filesystem::path& file) {
  std::vector<CsvColumn> columns;
  for (size_t i = 0; i < names.size(); ++i)
    columns.emplace_back(names[i], int32_t(i), i < types.size() ? types[i] : nullptr, file);
  return columns;
}

std::shared_ptr<arrow::Table> csv_table(std::vector<CsvColumn>& columns) {
  arrow::FieldVector fields;
  arrow::ChunkedArrayVector arrays;
  for (auto& column : columns) {
    arrays.push_back(column.finish());
    fields.push_back(arrow::field(column.name(), arrays.back()->type()));
  }
  return arrow::Table::Make(arrow::schema(std::move(fields)), std::move(arrays));
}

}  // namespace gradus::sources

#endif
