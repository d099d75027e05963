#include "trackers/wandb_log.h"

#include <zlib.h>

#include <algorithm>

#include "core/append_file.h"

namespace gradus {
namespace {

constexpr int64_t kBlock = 32768;
constexpr int64_t kRecordHeader = 7;
constexpr std::string_view kFileHeader{":W&B\xe1\xbe\0", 7};

enum RecordPart : unsigned char { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

std::string record_part(RecordPart part, std::string_view bytes) {
  const auto type = static_cast<unsigned char>(part);
  auto crc = ::crc32(0, &type, 1);
  crc = ::crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()), uInt(bytes.size()));
  std::string out;
  for (int shift = 0; shift < 32; shift += 8) out += char((crc >> shift) & 0xff);
  out += char(bytes.size() & 0xff);
  out += char(bytes.size() >> 8);
  out += char(type);
  return out.append(bytes);
}

}  // namespace

WandbLog::WandbLog(std::filesystem::path file, int64_t keep) : path_(std::move(file)), size_(keep) {
  discard();
}

void WandbLog::discard() {
  pending_.clear();
  if (size_ == 0) pending_ = kFileHeader;
}

WandbLog::~WandbLog() = default;

void WandbLog::append(std::string_view record) {
  bool is_first = true;
  do {
    const auto at = size() % kBlock;
    auto room = kBlock - at;
    if (room < kRecordHeader) {
      pending_.append(size_t(room), '\0');
      room = kBlock;
    }
    const auto part = record.substr(0, size_t(room - kRecordHeader));
    record.remove_prefix(part.size());
    const bool is_last = record.empty();
    pending_ +=
        record_part(is_first ? (is_last ? kFull : kFirst) : (is_last ? kLast : kMiddle), part);
    is_first = false;
  } while (!record.empty());
}

void WandbLog::flush() {
  if (pending_.empty()) return;
  if (file_ == nullptr) file_ = std::make_unique<AppendFile>(path_, size_);
  try {
    file_->append(pending_);
    file_->flush();
  } catch (...) {
    file_.reset();  // the next attempt cuts the file to what is whole
    throw;
  }
  size_ += int64_t(pending_.size());
  pending_.clear();
}

}  // namespace gradus
