#include "data/sources/arrow_rows.h"

#ifdef GRADUS_WITH_ARROW

#include <arrow/array.h>
#include <arrow/builder.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>

#include "data/sources/arrow_cell.h"
#include "data/sources/column_kind.h"

namespace gradus::sources {
namespace fs = std::filesystem;
namespace {

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

void check_write(const arrow::Status& status, const fs::path& file) {
  if (!status.ok())
    throw Error("G-IO-2", ErrorKind::io, "cannot write " + file.string() + ": " + status.message(),
                "Check free space, quotas and permissions of the folder.");
}

std::shared_ptr<arrow::Schema> arrow_schema_of(const RowSchema& columns) {
  arrow::FieldVector fields;
  for (const auto& column : columns.columns()) fields.push_back(field_of(column));
  return arrow::schema(std::move(fields));
}

std::shared_ptr<arrow::RecordBatch> record_batch_of(std::span<const Example> rows,
                                                    const RowSchema& columns,
                                                    const std::shared_ptr<arrow::Schema>& schema,
                                                    const fs::path& file) {
  std::vector<std::shared_ptr<arrow::Array>> arrays;
  for (size_t i = 0; i < columns.columns().size(); ++i) {
    const auto& column = columns.columns()[i];
    std::unique_ptr<arrow::ArrayBuilder> builder;
    check_write(
        arrow::MakeBuilder(arrow::default_memory_pool(), schema->field(int(i))->type(), &builder),
        file);
    for (const auto& row : rows) {
      const auto* value = row.find(column.name);
      check_write(value == nullptr
                      ? builder->AppendNull()
                      : append_cell(*builder, as_kind(*value, column.kind), column.kind),
                  file);
    }
    arrays.push_back(taken(builder->Finish(), file));
  }
  return arrow::RecordBatch::Make(schema, int64_t(rows.size()), std::move(arrays));
}

}  // namespace gradus::sources

#endif
