#ifdef GRADUS_WITH_ARROW

#include <arrow/io/file.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/data/load_dataset.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "core/open_file.h"
#include "data/sources/arrow_check.h"
#include "data/sources/arrow_table.h"
#include "data/sources/column_kind.h"
#include "data/sources/file_rows.h"
#include "data/sources/limited_pool.h"
#include "data/sources/source_errors.h"
#include "data/sources/unnamed_file.h"

namespace gradus::sources {
namespace fs = std::filesystem;
namespace {

// Parquet's C++ layer also throws; all ways of failing become one.
template <class Work>
auto guarded(const fs::path& file, const LimitedPool& pool, Work work) {
  try {
    return work();
  } catch (const parquet::ParquetException& error) {
    pool.check();
    throw damaged(file, error.what());
  } catch (const Error&) {
    pool.check();
    throw;
  } catch (const std::bad_alloc&) {
    pool.check();
    throw;
  }
}

struct ParquetFile {
  fs::path path = {};
  std::shared_ptr<LimitedPool> pool = {};  // before what is allocated with it
  std::unique_ptr<parquet::arrow::FileReader> reader = {};
  std::shared_ptr<arrow::Schema> schema = {};
  std::vector<int> leaves = {};  // of the columns asked for
  int64_t unpacked_bytes = 0;
  int64_t rows = 0;
};

std::vector<int> leaves_of(const parquet::arrow::SchemaManifest& manifest,
                           const std::vector<std::string>& wanted) {
  std::vector<int> leaves;
  const std::function<void(const parquet::arrow::SchemaField&)> collect = [&](const auto& field) {
    if (field.is_leaf()) leaves.push_back(field.column_index);
    for (const auto& child : field.children) collect(child);
  };
  for (const auto& field : manifest.schema_fields)
    if (wanted.empty() ||
        std::find(wanted.begin(), wanted.end(), field.field->name()) != wanted.end())
      collect(field);
  return leaves;
}

ParquetFile open_parquet(const fs::path& path, const LoadOptions& options) {
  const int descriptor = open_for_reading(path);
  struct stat info{};
  ::fstat(descriptor, &info);
  if (info.st_size == 0) {
    ::close(descriptor);
    throw damaged(path, "the file is empty (0 bytes)");
  }
  const auto pool = std::make_shared<LimitedPool>(path, options);
  return guarded(path, *pool, [&] {
    ParquetFile file{.path = path, .pool = pool};
    const auto input = take(arrow::io::ReadableFile::Open(descriptor, pool.get()), path);
    parquet::arrow::FileReaderBuilder builder;
    check_arrow(builder.Open(input, parquet::ReaderProperties(pool.get())), path);
    builder.memory_pool(pool.get());
    auto properties = parquet::default_arrow_reader_properties();
    properties.set_use_threads(
        false);  // Arrow's threads gain nothing here, and the thread sanitizer cannot follow them
    properties.set_batch_size(4096);
    properties.set_pre_buffer(false);
    builder.properties(properties);
    file.reader = take(builder.Build(), path);
    check_arrow(file.reader->GetSchema(&file.schema), path);
    choose_columns(file.schema->field_names(), options.columns, path.string());
    file.leaves = leaves_of(file.reader->manifest(), options.columns);
    const auto metadata = file.reader->parquet_reader()->metadata();
    file.rows = metadata->num_rows();
    if (file.rows < 0) throw damaged(path, "it claims a negative number of rows");
    for (int group = 0; group < metadata->num_row_groups(); ++group)
      for (const int leaf : file.leaves)
        if (__builtin_add_overflow(
                file.unpacked_bytes,
                std::max<int64_t>(
                    metadata->RowGroup(group)->ColumnChunk(leaf)->total_uncompressed_size(), 0),
                &file.unpacked_bytes))
          throw damaged(path, "it claims more bytes than can be counted");
    return file;
  });
}

// Until `use` says that it has had enough.
void for_each_batch(ParquetFile& file,
                    const std::function<bool(std::shared_ptr<arrow::RecordBatch>)>& use) {
  guarded(file.path, *file.pool, [&] {
    std::vector<int> groups(size_t(file.reader->num_row_groups()));
    for (size_t i = 0; i < groups.size(); ++i) groups[i] = int(i);
    const auto batches = take(file.reader->GetRecordBatchReader(groups, file.leaves), file.path);
    while (true) {
      std::shared_ptr<arrow::RecordBatch> batch;
      check_arrow(batches->ReadNext(&batch), file.path);
      if (batch == nullptr || !use(std::move(batch))) return;
    }
  });
}

// Unpacks a large file into a nameless Arrow file, which is then mapped: rows at hand, memory free.
std::shared_ptr<MappedFile> unpack_to_disk(ParquetFile& file, const LoadOptions& options) {
  const int descriptor = open_unnamed_file(options.temporary_dir);
  const int for_arrow = ::dup(descriptor);  // Arrow closes its own
  const auto output = take(arrow::io::FileOutputStream::Open(for_arrow), file.path);
  std::shared_ptr<arrow::ipc::RecordBatchWriter> writer;
  for_each_batch(file, [&](const std::shared_ptr<arrow::RecordBatch>& batch) {
    if (writer == nullptr)
      writer = take(arrow::ipc::MakeStreamWriter(output, batch->schema()), file.path);
    check_arrow(writer->WriteRecordBatch(*batch), file.path);
    if (take(output->Tell(), file.path) > file.pool->limit()) throw file.pool->refusal();
    return true;
  });
  if (writer != nullptr) check_arrow(writer->Close(), file.path);
  check_arrow(output->Close(), file.path);
  return std::make_shared<MappedFile>(descriptor, file.path);
}

// All rows in memory; nothing when they take more than `most` bytes, whatever the file says.
std::optional<arrow::RecordBatchVector> read_batches(ParquetFile& file, int64_t most) {
  arrow::RecordBatchVector batches;
  bool fits = file.unpacked_bytes <= most;
  if (fits)
    for_each_batch(file, [&](std::shared_ptr<arrow::RecordBatch> batch) {
      batches.push_back(std::move(batch));
      fits = file.pool->bytes_allocated() <= most;
      return fits;
    });
  return fits ? std::optional(std::move(batches)) : std::nullopt;
}

class ParquetRows : public FileRows {
 public:
  ParquetRows(const SourceFile& source, const LoadOptions& options)
      : file_(open_parquet(source.path, options)) {
    columns_ = ArrowColumns::of(*file_.schema, options.columns, source.path);
    open_group(0);
  }
  std::optional<Example> next() override {
    while (batch_ == nullptr || row_ >= batch_->num_rows())
      if (!next_batch()) return std::nullopt;
    Example example;
    for (size_t i = 0; i < arrays_.size(); ++i)
      example.set(columns_.infos[i].name, columns_.read(i, *arrays_[i], row_));
    ++row_;
    ++row_in_group_;
    return example;
  }
  std::vector<std::string> column_names() const override { return columns_.names(); }
  nlohmann::json position() const override {
    return {{"row_group", group_}, {"row", row_in_group_}};
  }
  void seek(const nlohmann::json& position) override {
    const auto group = position.at("row_group").get<int>();
    auto skip = position.at("row").get<int64_t>();
    if (group < 0 || group > file_.reader->num_row_groups())
      throw foreign_state(fmt::format("{} has no row group {}", file_.path.string(), group));
    open_group(group);
    while (skip > 0 && next_batch()) {
      row_ = std::min(skip, batch_->num_rows());
      row_in_group_ += row_;
      skip -= row_;
    }
  }

 private:
  void open_group(int group) {
    group_ = group;
    row_in_group_ = 0;
    batch_.reset();
    row_ = 0;
    batches_.reset();
    if (group >= file_.reader->num_row_groups()) return;
    guarded(file_.path, *file_.pool, [&] {
      batches_ = take(file_.reader->GetRecordBatchReader({group}, file_.leaves), file_.path);
    });
  }
  bool next_batch() {
    while (batches_ != nullptr) {
      guarded(file_.path, *file_.pool,
              [&] { check_arrow(batches_->ReadNext(&batch_), file_.path); });
      row_ = 0;
      if (batch_ != nullptr) {
        arrays_ = columns_.pick(*batch_);
        for (const auto& array : arrays_) checker_.check(*array, file_.path);
        return true;
      }
      open_group(group_ + 1);
    }
    return false;
  }

  ParquetFile file_;
  ArrowColumns columns_;
  ArrayChecker checker_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::vector<std::shared_ptr<arrow::Array>> arrays_;
  int group_ = 0;
  int64_t row_ = 0;
  int64_t row_in_group_ = 0;
};

}  // namespace

std::shared_ptr<ArrowTable> load_parquet(const std::vector<SourceFile>& files,
                                         const LoadOptions& options) {
  std::shared_ptr<ArrowTable> table;
  for (const auto& source : files) {
    auto file = open_parquet(source.path, options);
    if (table == nullptr)
      table =
          std::make_shared<ArrowTable>(ArrowColumns::of(*file.schema, options.columns, file.path));
    else
      table->arrow_columns().merge(*file.schema, file.path);
    if (file.rows == 0) continue;
    table->keep(file.pool);
    if (const auto batches = read_batches(file, options.in_memory_limit))
      for (const auto& batch : *batches) table->append(*batch, file.path);
    else
      table->append_mapped(unpack_to_disk(file, options), file.pool);
  }
  return table;
}

std::unique_ptr<FileRows> open_parquet_rows(const SourceFile& file, const LoadOptions& options) {
  return std::make_unique<ParquetRows>(file, options);
}

}  // namespace gradus::sources

#endif
