#include "data/sources/arrow_writer.h"

#ifdef GRADUS_WITH_ARROW

#include <arrow/io/file.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <fcntl.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>

#include <cerrno>

#include "core/file_errors.h"
#include "core/temporary_name.h"
#include "data/sources/arrow_rows.h"
#include "data/sources/arrow_table.h"

namespace gradus::sources {
namespace fs = std::filesystem;
namespace {

// A new file. What lies under the name, such as a link or what a killed process left, is removed,
// not written to.
int create_file(const fs::path& file) {
  const int descriptor =
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor < 0) throw cannot_write(file, errno);
  return descriptor;
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
  written_kinds_.clear();
  for (const auto& column : schema_.columns()) written_kinds_.push_back(column.kind);
  arrow_schema_ = arrow_schema_of(schema_);
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
  check_write(writer_->WriteRecordBatch(*record_batch_of(rows, schema_, arrow_schema_, path_)),
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
