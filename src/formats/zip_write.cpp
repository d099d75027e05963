#include <algorithm>

#include "formats/zip.h"
#include "formats/zip_format.h"

namespace gradus {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint16_t kVersion = 20;
constexpr uint16_t kVersion64 = 45;
constexpr uint16_t kDate = 0x21;  // 1980-01-01: files of equal content are equal

/// Little-endian fields in a row.
class Fields {
 public:
  Fields& u16(uint64_t value) { return put(value, 2); }
  Fields& u32(uint64_t value) { return put(value, 4); }
  Fields& u64(uint64_t value) { return put(value, 8); }
  /// A 32-bit field, or the mark that the value is in the 64-bit extra.
  Fields& u32_or_mark(uint64_t value) { return u32(std::min<uint64_t>(value, zip::kIn64)); }
  Fields& text(std::string_view value) {
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Fields& put(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_ += char(value >> (8 * i));
    return *this;
  }
  std::string bytes_;
};

bool is_large(uint64_t value) { return value >= zip::kIn64; }

}  // namespace

void ZipWriter::add(const std::string& name, const void* data, size_t size) {
  Record record{folder_ + "/" + name, sink_.size(), size, checksum_of(data, size)};
  Fields extra;
  if (is_large(size)) extra.u16(zip::kExtra64).u16(16).u64(size).u64(size);
  const auto unpadded =
      record.offset + zip::kLocalHeaderSize + record.name.size() + extra.bytes().size() + 4;
  const auto padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  extra.u16(zip::kExtraPadding).u16(padding).text(std::string(padding, 'Z'));

  Fields header;
  header.u32(zip::kLocalHeader)
      .u16(is_large(size) ? kVersion64 : kVersion)
      .u16(zip::kFlagUtf8)
      .u16(0)
      .u16(0)
      .u16(kDate);
  header.u32(record.checksum).u32_or_mark(size).u32_or_mark(size);
  header.u16(record.name.size()).u16(extra.bytes().size()).text(record.name).text(extra.bytes());
  sink_.write(header.bytes().data(), header.bytes().size());
  sink_.write(data, size, record.checksum);
  records_.push_back(std::move(record));
}

void ZipWriter::finish() {
  const auto begin = sink_.size();
  for (const auto& record : records_) {
    Fields values;
    if (is_large(record.size)) values.u64(record.size).u64(record.size);
    if (is_large(record.offset)) values.u64(record.offset);
    Fields extra;
    if (!values.bytes().empty())
      extra.u16(zip::kExtra64).u16(values.bytes().size()).text(values.bytes());
    const auto version = values.bytes().empty() ? kVersion : kVersion64;
    Fields row;
    row.u32(zip::kCentralHeader)
        .u16(version)
        .u16(version)
        .u16(zip::kFlagUtf8)
        .u16(0)
        .u16(0)
        .u16(kDate);
    row.u32(record.checksum).u32_or_mark(record.size).u32_or_mark(record.size);
    row.u16(record.name.size())
        .u16(extra.bytes().size())
        .u16(0)
        .u16(0)
        .u16(0)
        .u32(0)
        .u32_or_mark(record.offset);
    row.text(record.name).text(extra.bytes());
    sink_.write(row.bytes().data(), row.bytes().size());
  }
  const auto end = sink_.size();
  const uint64_t count = records_.size();
  Fields tail;
  if (is_large(end) || count >= zip::kIn64Short) {
    tail.u32(zip::kEndRecord64)
        .u64(zip::kEndRecord64Size - 12)
        .u16(kVersion64)
        .u16(kVersion64)
        .u32(0)
        .u32(0);
    tail.u64(count).u64(count).u64(end - begin).u64(begin);
    tail.u32(zip::kEndLocator64).u32(0).u64(end).u32(1);
  }
  const auto short_count = std::min<uint64_t>(count, zip::kIn64Short);
  tail.u32(zip::kEndRecord)
      .u16(0)
      .u16(0)
      .u16(short_count)
      .u16(short_count)
      .u32_or_mark(end - begin)
      .u32_or_mark(begin)
      .u16(0);
  sink_.write(tail.bytes().data(), tail.bytes().size());
}

}  // namespace gradus
