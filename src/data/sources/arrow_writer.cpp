#include "data/sources/arrow_writer.h"

#ifdef GRADUS_WITH_ARROW

#include <arrow/array.h>
#include <arrow/builder.h>
#include <arrow/io/file.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>

#include <cerrno>

#include "core/file_errors.h"
#include "core/temporary_name.h"
#include "data/sources/arrow_cell.h"
#include "data/sources/arrow_table.h"
#include "data/sources/column_kind.h"

namespace gradus::sources {
namespace fs = std::filesystem;
namespace {

void check_write(const arrow::Status& status, const fs::path& file) {
  if (!status.ok())
    throw Error("G-IO-2", ErrorKind::io, "cannot write " + file.string() + ": " + status.message(),
                "Check free space, quotas and permissions of the folder.");
}

// A new file. What lies under the name, such as a link or what a killed process left, is removed,
// not written to.
int create_file(const fs::path& file) {
  const int descriptor =
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor < 0) throw cannot_write(file, errno);
  return descriptor;
}

template <class T>
T taken(arrow::Result<T> result, const fs::path& file) {
  check_write(result.status(), file);
  return std::move(result).ValueUnsafe();
}

std::shared_ptr<arrow::Field> field_of(const ColumnInfo& column) {
  const auto coded = [&](std::shared_ptr<arrow::DataType> type, const char* coding) {
    return arrow::field(column.name, std::move(type), true,
                        arrow::key_value_metadata({kCodingKey}, {coding}));
  };
  switch (column.kind) {
    case ColumnKind::null: return arrow::field(column.name, arrow::null());
    case ColumnKind::boolean: return arrow::field(column.name, arrow::boolean());
    case ColumnKind::integer: return arrow::field(column.name, arrow::int64());
    case ColumnKind::number: return arrow::field(column.name, arrow::float64());
    case ColumnKind::text: return arrow::field(column.name, arrow::large_utf8());
    case ColumnKind::integers: return arrow::field(column.name, arrow::large_list(arrow::int64()));
    case ColumnKind::numbers: return arrow::field(column.name, arrow::large_list(arrow::float64()));
    case ColumnKind::texts:
      return arrow::field(column.name, arrow::large_list(arrow::large_utf8()));
    case ColumnKind::tensor: return coded(arrow::large_binary(), "tensor");
    case ColumnKind::nested:
    case ColumnKind::mixed: break;
  }
  return coded(arrow::large_utf8(), "json");
}

template <class Builder>
Builder& as(arrow::ArrayBuilder& builder) {
  return static_cast<Builder&>(builder);
}

arrow::Status append_list(arrow::ArrayBuilder& builder, const Value& value) {
  auto& list = as<arrow::LargeListBuilder>(builder);
  ARROW_RETURN_NOT_OK(list.Append());
  if (value.is_ints())
    return as<arrow::Int64Builder>(*list.value_builder()).AppendValues(value.ints());
  if (value.is_floats())
    return as<arrow::DoubleBuilder>(*list.value_builder()).AppendValues(value.floats());
  return as<arrow::LargeStringBuilder>(*list.value_builder()).AppendValues(value.strings());
}

// `value` is of the kind of its column (or null).
arrow::Status append_cell(arrow::ArrayBuilder& builder, const Value& value, ColumnKind kind) {
  if (value.is_null()) return builder.AppendNull();
  switch (kind) {
    case ColumnKind::null: return builder.AppendNull();
    case ColumnKind::boolean: return as<arrow::BooleanBuilder>(builder).Append(value.boolean());
    case ColumnKind::integer: return as<arrow::Int64Builder>(builder).Append(value.integer());
    case ColumnKind::number: return as<arrow::DoubleBuilder>(builder).Append(value.number());
    case ColumnKind::text: return as<arrow::LargeStringBuilder>(builder).Append(value.str());
    case ColumnKind::integers:
    case ColumnKind::numbers:
    case ColumnKind::texts: return append_list(builder, value);
    case ColumnKind::tensor:
      return as<arrow::LargeBinaryBuilder>(builder).Append(pack_tensor(value.tensor()));
    case ColumnKind::nested:
    case ColumnKind::mixed: break;
  }
  return as<arrow::LargeStringBuilder>(builder).Append(dump_json(json_from_value(value)));
}

}  // namespace

ArrowWriter::ArrowWriter(fs::path path)
    : path_(std::move(path)),
      temporary_(path_.parent_path() / temporary_name(path_.filename().string())) {}

ArrowWriter::~ArrowWriter() {
  if (closed_) return;
  std::error_code ignored;
  if (output_ != nullptr) static_cast<void>(output_->Close());  // the file goes anyway
  fs::remove(temporary_, ignored);
}

void ArrowWriter::start() {
  arrow::FieldVector fields;
  written_kinds_.clear();
  for (const auto& column : schema_.columns()) {
    fields.push_back(field_of(column));
    written_kinds_.push_back(column.kind);
  }
  arrow_schema_ = arrow::schema(std::move(fields));
  output_ = std::make_shared<SummedOutput>(
      taken(arrow::io::FileOutputStream::Open(create_file(temporary_)), path_));
  writer_ = taken(arrow::ipc::MakeStreamWriter(output_, arrow_schema_), path_);
}

void ArrowWriter::append(std::span<const Example> rows) {
  if (rows.empty()) return;
  for (const auto& row : rows) schema_.add(row);
  std::vector<ColumnKind> kinds;
  for (const auto& column : schema_.columns()) kinds.push_back(column.kind);
  if (writer_ == nullptr)
    start();
  else if (kinds != written_kinds_)
    rewrite();
  write(rows);
}

void ArrowWriter::write(std::span<const Example> rows) {
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  const auto& columns = schema_.columns();
  for (size_t i = 0; i < columns.size(); ++i) {
    std::unique_ptr<arrow::ArrayBuilder> builder;
    check_write(arrow::MakeBuilder(arrow::default_memory_pool(),
                                   arrow_schema_->field(int(i))->type(), &builder),
                path_);
    for (const auto& row : rows) {
      const auto* value = row.find(columns[i].name);
      check_write(value == nullptr
                      ? builder->AppendNull()
                      : append_cell(*builder, as_kind(*value, columns[i].kind), columns[i].kind),
                  path_);
    }
    arrays.push_back(taken(builder->Finish(), path_));
  }
  check_write(writer_->WriteRecordBatch(*arrow::RecordBatch::Make(
                  arrow_schema_, int64_t(rows.size()), std::move(arrays))),
              path_);
  output_->end_block();
}

void ArrowWriter::rewrite() {
  finish_file();
  const auto before = map_summed_file(std::make_shared<MappedFile>(temporary_));
  std::error_code ignored;
  fs::remove(temporary_, ignored);  // stays readable while it is mapped
  start();
  std::vector<Example> rows;
  for (int64_t i = 0; i < before->size(); ++i) {
    rows.push_back(before->get(i));
    if (rows.size() == 1000 || i + 1 == before->size()) {
      write(rows);
      rows.clear();
    }
  }
}

void ArrowWriter::finish_file() {
  check_write(writer_->Close(), path_);
  check_write(output_->write_table(), path_);
  check_write(output_->Close(), path_);
}

void ArrowWriter::close() {
  if (writer_ == nullptr) start();
  finish_file();
  sync_path(temporary_);
  std::error_code code;
  fs::rename(temporary_, path_, code);
  if (code)
    throw Error("G-IO-2", ErrorKind::io, "cannot write " + path_.string() + ": " + code.message(),
                "Check the permissions of the folder.");
  sync_path(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
  closed_ = true;
}

}  // namespace gradus::sources

#endif
