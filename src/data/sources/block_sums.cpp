#ifdef GRADUS_WITH_ARROW

#include "data/sources/block_sums.h"

#include <arrow/result.h>
#include <arrow/status.h>
#include <fmt/format.h>
#include <gradus/core/error.h>

#include <cstring>

#include "data/sources/source_errors.h"

namespace gradus::sources {
namespace {

// An Arrow message begins with a mark and the length of the rest of its head. A length of 0 ends
// the stream.
constexpr size_t kPrefix = 8;
constexpr size_t kMessageMark = 4;
constexpr std::string_view kStreamEnd("\xff\xff\xff\xff\0\0\0\0", 8);

// The size of the head that begins with `bytes`, as far as they say.
size_t head_size(std::string_view bytes) {
  if (bytes.size() < kPrefix) return kPrefix;
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + kMessageMark, sizeof length);
  return kPrefix + length;
}

// The last bytes of a file with checksums.
struct SumsEnd {
  uint64_t table = 0;  // offset
  uint64_t count = 0;
  uint32_t table_sum = 0;
  uint32_t version = 1;
  char magic[8] = {'G', 'R', 'A', 'D', 'S', 'U', 'M', 'S'};
};
static_assert(sizeof(SumsEnd) == 32);

uint32_t sum_of(const MappedFile& file, uint64_t offset, uint64_t size) {
  return checksum_of(file.data() + offset, size_t(size));
}

// Where the table is and whether it is whole.
SumsEnd read_end(const MappedFile& file) {
  SumsEnd end;
  const SumsEnd expected;
  if (file.size() < sizeof end)
    throw damaged(file.path(), fmt::format("it has only {} bytes", file.size()));
  std::memcpy(&end, file.data() + file.size() - sizeof end, sizeof end);
  if (std::memcmp(end.magic, expected.magic, sizeof end.magic) != 0 ||
      end.version != expected.version)
    throw damaged(file.path(), "it ends without the checksums of its blocks");
  const auto before_end = file.size() - sizeof end;
  if (end.table > before_end || (before_end - end.table) % sizeof(BlockSum) != 0 ||
      (before_end - end.table) / sizeof(BlockSum) != end.count || end.count == 0 ||
      sum_of(file, end.table, before_end - end.table) != end.table_sum)
    throw damaged(file.path(), "the table of its checksums does not match its own checksum");
  return end;
}

}  // namespace

SummedOutput::SummedOutput(std::shared_ptr<arrow::io::OutputStream> file)
    : file_(std::move(file)) {}

arrow::Status SummedOutput::Write(const void* data, int64_t size) {
  ARROW_RETURN_NOT_OK(file_->Write(data, size));
  position_ += uint64_t(size);
  std::string_view bytes(static_cast<const char*>(data), size_t(size));
  while (!bytes.empty()) {
    const auto wanted = head_size(head_);
    if (head_.size() < wanted) {
      const auto part = bytes.substr(0, wanted - head_.size());
      head_ += part;
      bytes.remove_prefix(part.size());
    } else if (blocks_.empty()) {  // the schema, which has no body; Arrow writes it with the first
      end_block();                 // batch
    } else {
      break;
    }
  }
  body_sum_.update(bytes.data(), bytes.size());
  block_.body += bytes.size();
  return arrow::Status::OK();
}

arrow::Status SummedOutput::Close() { return file_->Close(); }

void SummedOutput::end_block() {
  block_.head = head_.size();
  block_.head_sum = checksum_of(head_.data(), head_.size());
  block_.body_sum = body_sum_.value();
  blocks_.push_back(block_);
  block_ = {.offset = block_.offset + block_.head + block_.body};
  body_sum_ = {};
  head_.clear();
}

arrow::Status SummedOutput::write_table() {
  SumsEnd end{.table = position_, .count = blocks_.size()};
  const auto bytes = int64_t(blocks_.size() * sizeof(BlockSum));
  end.table_sum = checksum_of(blocks_.data(), size_t(bytes));
  ARROW_RETURN_NOT_OK(file_->Write(blocks_.data(), bytes));
  return file_->Write(&end, sizeof end);
}

std::vector<BlockSum> read_block_sums(const MappedFile& file) {
  const auto end = read_end(file);
  std::vector<BlockSum> blocks(size_t(end.count));
  std::memcpy(blocks.data(), file.data() + end.table, blocks.size() * sizeof(BlockSum));
  uint64_t position = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto& block = blocks[i];
    if (block.offset != position || block.head > end.table - position ||
        block.body > end.table - position - block.head)
      throw damaged(file.path(), "its table of checksums makes no sense");
    if (sum_of(file, block.offset, block.head) != block.head_sum)
      throw damaged(file.path(),
                    fmt::format("block {} of {} does not match its checksum", i, blocks.size()));
    position += block.head + block.body;
  }
  if (std::string_view(file.data() + position, size_t(end.table - position)) != kStreamEnd)
    throw damaged(file.path(), "its blocks do not end where its checksums begin");
  return blocks;
}

bool body_holds(const BlockSum& block, const MappedFile& file) {
  return sum_of(file, block.offset + block.head, block.body) == block.body_sum;
}

}  // namespace gradus::sources

#endif
