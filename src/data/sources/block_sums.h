#pragma once

#ifdef GRADUS_WITH_ARROW

#include <arrow/io/interfaces.h>
#include <gradus/formats/checksum.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/mapped_file.h"

namespace gradus::sources {

/// A message of an Arrow stream (the schema, or a record batch) and its checksums. The head says
/// what is in the body and where.
struct BlockSum {
  uint64_t offset = 0;  ///< in the file
  uint64_t head = 0;    ///< bytes
  uint64_t body = 0;    ///< bytes
  uint32_t head_sum = 0;
  uint32_t body_sum = 0;
  uint32_t unused[2] = {};
};
static_assert(sizeof(BlockSum) == 40);

/// Passes an Arrow stream on to a file and takes the checksums of its messages.
class SummedOutput : public arrow::io::OutputStream {
 public:
  explicit SummedOutput(std::shared_ptr<arrow::io::OutputStream> file);

  arrow::Status Write(const void* data, int64_t size) override;
  using arrow::io::OutputStream::Write;
  arrow::Status Close() override;
  arrow::Result<int64_t> Tell() const override { return int64_t(position_); }
  bool closed() const override { return file_->closed(); }

  /// A record batch has been written.
  void end_block();
  /// Writes the table of checksums after the end of the stream.
  arrow::Status write_table();

 private:
  std::shared_ptr<arrow::io::OutputStream> file_;
  uint64_t position_ = 0;
  BlockSum block_;
  std::string head_;  // its first bytes, until they are complete
  Crc32 body_sum_;
  std::vector<BlockSum> blocks_;
};

/// The table at the end of a file that was written through `SummedOutput`: the schema and each
/// record batch. Everything but the bodies of the batches is compared with its checksum now. Throws
/// G-SRC-8 when that fails, and when there is no table.
std::vector<BlockSum> read_block_sums(const MappedFile& file);

/// Whether the body of a block is as it was written.
bool body_holds(const BlockSum& block, const MappedFile& file);

}  // namespace gradus::sources

#endif
