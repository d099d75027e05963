#include "data/sources/arrow_table.h"
#include "core/parsed_json.h"

#ifdef GRADUS_WITH_ARROW

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>

#include <cstring>

#include "data/sources/column_kind.h"
#include "data/sources/source_errors.h"

namespace gradus::sources {
namespace fs = std::filesystem;
namespace {

// `info.features` of what `datasets` writes into the schema of a file; null when it is not there.
nlohmann::json features_in(const arrow::Schema& schema) {
  if (schema.metadata() == nullptr) return nullptr;
  const auto text = schema.metadata()->Get("huggingface");
  if (!text.ok()) return nullptr;
  const auto document = json_or_discarded(*text);
  const auto features = nlohmann::json::json_pointer("/info/features");
  return document.is_object() && document.contains(features) ? document.at(features)
                                                             : nlohmann::json();
}

// `features` of the dataset_info.json that `datasets` writes beside its files; null without one.
nlohmann::json features_beside(const fs::path& file) {
  const auto path = file.parent_path() / "dataset_info.json";
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return nullptr;
  const auto document = json_or_discarded(read_file(path));
  return document.is_object() ? document.value("features", nlohmann::json()) : nlohmann::json();
}

// The names of a `datasets.ClassLabel` column, or of a list of them.
void read_class_names(const nlohmann::json& features, std::vector<ColumnInfo>& infos) {
  if (!features.is_object()) return;
  for (auto& info : infos) {
    const auto feature = features.find(info.name);
    if (feature == features.end() || !feature->is_object()) continue;
    const auto& label = feature->contains("feature") && (*feature)["feature"].is_object()
                            ? (*feature)["feature"]
                            : *feature;
    const auto type = label.find("_type");
    if (type == label.end() || *type != "ClassLabel" || !label.contains("names")) continue;
    for (const auto& name : label["names"])
      if (name.is_string()) info.class_names.push_back(name.get<std::string>());
  }
}

ColumnInfo describe(const arrow::Field& field) {
  const auto coding = coding_of(field);
  const auto kind = coding == CellCoding::json     ? ColumnKind::nested
                    : coding == CellCoding::tensor ? ColumnKind::tensor
                                                   : kind_of_type(*field.type());
  return {.name = field.name(), .kind = kind, .stored_as = field.type()->ToString()};
}

// Why `name` does not stand for one column: there is none, or there are two.
Error no_single_column(const arrow::Schema& schema, const std::string& name, const fs::path& file) {
  choose_columns(schema.field_names(), {name}, file.string());
  return damaged(file, fmt::format("two columns are called \"{}\"", name), "Rename one of them.");
}

class MappedBuffer : public arrow::Buffer {
 public:
  explicit MappedBuffer(std::shared_ptr<const MappedFile> file)
      : arrow::Buffer(reinterpret_cast<const uint8_t*>(file->data()), int64_t(file->size())),
        file_(std::move(file)) {}

 private:
  std::shared_ptr<const MappedFile> file_;
};

arrow::ipc::IpcReadOptions read_options(const arrow::Schema& schema,
                                        const std::vector<ColumnInfo>& columns) {
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.use_threads = false;
  // Cells are read through pointers of their type. Buffers at odd places are copied.
  options.ensure_alignment = arrow::ipc::Alignment::kDataTypeSpecificAlignment;
  for (const auto& column : columns)
    if (const int i = schema.GetFieldIndex(column.name); i >= 0)
      options.included_fields.push_back(i);
  std::sort(options.included_fields.begin(), options.included_fields.end());
  return options;
}

bool is_file_format(const MappedFile& file) {
  return file.size() >= 6 && std::memcmp(file.data(), "ARROW1", 6) == 0;
}

std::shared_ptr<arrow::Schema> schema_of(const MappedFile& file,
                                         const std::shared_ptr<arrow::Buffer>& buffer) {
  arrow::io::BufferReader input(buffer);
  if (is_file_format(file))
    return take(arrow::ipc::RecordBatchFileReader::Open(&input), file.path())->schema();
  return take(arrow::ipc::RecordBatchStreamReader::Open(&input), file.path())->schema();
}

}  // namespace

ArrowColumns ArrowColumns::of(const arrow::Schema& schema, const std::vector<std::string>& wanted,
                              const fs::path& file) {
  ArrowColumns columns;
  for (const auto& name : choose_columns(schema.field_names(), wanted, file.string())) {
    if (!wanted.empty() && std::any_of(columns.infos.begin(), columns.infos.end(),
                                       [&](const auto& info) { return info.name == name; }))
      continue;  // asked for twice
    const auto field = schema.GetFieldByName(name);
    if (field == nullptr) throw no_single_column(schema, name, file);
    columns.infos.push_back(describe(*field));
    columns.codings.push_back(coding_of(*field));
  }
  const auto features = features_in(schema);
  read_class_names(features.is_object() ? features : features_beside(file), columns.infos);
  return columns;
}

void ArrowColumns::merge(const arrow::Schema& schema, const fs::path& file) {
  for (auto& info : infos) {
    const auto field = schema.GetFieldByName(info.name);
    if (field == nullptr) throw no_single_column(schema, info.name, file);
    const auto other = describe(*field);
    const auto kind = merge_kinds(info.kind, other.kind);
    if (kind == ColumnKind::mixed && info.kind != ColumnKind::mixed)
      throw Error(
          "G-SRC-7", ErrorKind::data,
          fmt::format("column \"{}\" of {} is {}; expected {} as in the files before", info.name,
                      file.string(), kind_name(other.kind), kind_name(info.kind)),
          "Files that are read together need the same columns. Convert one of them, or leave the "
          "column out.");
    info.kind = kind;
  }
}

std::vector<std::string> ArrowColumns::names() const {
  std::vector<std::string> names;
  for (const auto& info : infos) names.push_back(info.name);
  return names;
}

Value ArrowColumns::read(size_t column, const arrow::Array& array, int64_t row) const {
  if (codings[column] == CellCoding::tensor) return read_tensor_cell(array, row);
  auto value = read_cell(array, row);
  if (codings[column] == CellCoding::json && value.is_string() &&
      array.type_id() != arrow::Type::EXTENSION)
    return value_from_json(parse_ordered_json(value.str(), "column " + infos[column].name));
  return infos[column].kind == ColumnKind::number || infos[column].kind == ColumnKind::numbers
             ? as_kind(std::move(value), infos[column].kind)
             : value;
}

std::vector<std::shared_ptr<arrow::Array>> ArrowColumns::pick(
    const arrow::RecordBatch& batch) const {
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (const auto& info : infos) arrays.push_back(batch.GetColumnByName(info.name));
  return arrays;
}

ArrowTable::ArrowTable(ArrowColumns columns) : columns_(std::move(columns)) {
  for (const auto& info : columns_.infos) empty_row_.set(info.name, {});
}

void ArrowTable::append(const arrow::RecordBatch& batch, const fs::path& file,
                        std::shared_ptr<const MappedFile> mapping, std::optional<BlockSum> sum) {
  check_arrow(batch.Validate(), file);
  if (batch.num_rows() < 0) throw damaged(file, "it claims a negative number of rows");
  if (batch.num_rows() == 0) return;
  int64_t end = 0;
  if (__builtin_add_overflow(first_rows_.back(), batch.num_rows(), &end))
    throw damaged(file, "it claims more rows than can be counted");
  auto& part = parts_.emplace_back();
  part.arrays = columns_.pick(batch);
  part.file = file;
  part.mapping = mapping.get();
  part.sum = sum;
  ++unchecked_;
  first_rows_.push_back(end);
  if (mapping != nullptr && (mappings_.empty() || mappings_.back() != mapping))
    mappings_.push_back(std::move(mapping));
}

void ArrowTable::append_mapped(const std::shared_ptr<const MappedFile>& file,
                               std::shared_ptr<LimitedPool> pool,
                               const std::vector<BlockSum>& sums) {
  const auto buffer = std::make_shared<MappedBuffer>(file);
  auto options = read_options(*schema_of(*file, buffer), columns_.infos);
  options.memory_pool = pool.get();
  pools_.push_back(pool);
  auto input = std::make_shared<arrow::io::BufferReader>(buffer);
  const auto check_read = [&](const arrow::Status& status) {
    if (!status.ok()) pool->check();
    check_arrow(status, file->path());
  };
  if (is_file_format(*file)) {
    const auto reader = arrow::ipc::RecordBatchFileReader::Open(input, options);
    check_read(reader.status());
    for (int i = 0; i < (*reader)->num_record_batches(); ++i) {
      const auto batch = (*reader)->ReadRecordBatch(i);
      check_read(batch.status());
      append(**batch, file->path(), file);
    }
    return;
  }
  const auto reader = arrow::ipc::RecordBatchStreamReader::Open(input, options);
  check_read(reader.status());
  for (size_t block = 1;; ++block) {  // block 0 is the schema
    std::shared_ptr<arrow::RecordBatch> batch;
    check_read((*reader)->ReadNext(&batch));
    if (batch == nullptr && (sums.empty() || block == sums.size())) return;
    if (batch == nullptr || (!sums.empty() && block >= sums.size()))
      throw damaged(file->path(), "it has other blocks than checksums");
    append(*batch, file->path(), file, sums.empty() ? std::nullopt : std::optional(sums[block]));
  }
}

Example ArrowTable::get(int64_t index) const {
  if (index < 0 || index >= size()) throw row_out_of_range(index, size());
  const auto place = part_of(index);
  const auto& part = parts_[place];
  if (part.mapping != nullptr) check_not_cut_short(*part.mapping);
  if (!part.sound.load(std::memory_order_acquire)) check(place);
  Example row = empty_row_;
  for (size_t i = 0; i < columns_.infos.size(); ++i)
    row.set_value(i, columns_.read(i, *part.arrays[i], index - first_rows_[place]));
  return row;
}

void ArrowTable::check(size_t place) const {
  const auto& part = parts_[place];
  const std::lock_guard lock(part.checking);
  if (part.sound.load(std::memory_order_relaxed)) return;
  if (part.sum && !body_holds(*part.sum, *part.mapping))
    throw damaged(part.file, fmt::format("its rows {} to {} do not match their checksum",
                                         first_rows_[place], first_rows_[place + 1] - 1));
  for (const auto& array : part.arrays) checker_.check(*array, part.file);
  part.sound.store(true, std::memory_order_release);
  --unchecked_;
}

void ArrowTable::check_all() const {
  for (size_t part = 0; part < parts_.size(); ++part) check(part);
}

size_t ArrowTable::part_of(int64_t index) const {
  return size_t(std::upper_bound(first_rows_.begin(), first_rows_.end(), index) -
                first_rows_.begin() - 1);
}

void ArrowTable::release_pages(int64_t index) const {
  if (const auto* mapping = parts_.empty() ? nullptr : parts_[part_of(index)].mapping)
    mapping->release_pages();
}

std::shared_ptr<ArrowTable> load_arrow(const std::vector<SourceFile>& files,
                                       const LoadOptions& options) {
  std::shared_ptr<ArrowTable> table;
  for (const auto& source : files) {
    const auto file = std::make_shared<MappedFile>(source.path);
    if (file->size() == 0) throw damaged(file->path(), "the file is empty (0 bytes)");
    const auto schema = schema_of(*file, std::make_shared<MappedBuffer>(file));
    if (table == nullptr)
      table =
          std::make_shared<ArrowTable>(ArrowColumns::of(*schema, options.columns, file->path()));
    else
      table->arrow_columns().merge(*schema, file->path());
    table->append_mapped(file, std::make_shared<LimitedPool>(file->path(), options));
  }
  return table;
}

std::shared_ptr<ArrowTable> map_summed_file(const std::shared_ptr<const MappedFile>& mapping) {
  const auto sums = read_block_sums(*mapping);
  const auto schema = schema_of(*mapping, std::make_shared<MappedBuffer>(mapping));
  const auto table = std::make_shared<ArrowTable>(ArrowColumns::of(*schema, {}, mapping->path()));
  table->append_mapped(mapping, std::make_shared<LimitedPool>(mapping->path(), LoadOptions{}),
                       sums);
  return table;
}

}  // namespace gradus::sources

#endif
