#include <gradus/core/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "formats/zip.h"
#include "formats/zip_format.h"

namespace gradus {
namespace {

/// Reads numbers at checked positions of the archive.
class Archive {
 public:
  explicit Archive(const MappedFile& file) : file_(file) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error("G-PT-1", ErrorKind::checkpoint,
                "cannot read " + file_.path().string() + ": " + what,
                "The file is damaged or was not written by torch.save. Fetch or save it again.");
  }

  size_t size() const { return file_.size(); }

  void need(uint64_t offset, uint64_t count, const char* what) const {
    if (offset > file_.size() || count > file_.size() - offset)
      fail(fmt::format("{} at byte {} needs {} bytes, the file has {}", what, offset, count,
                       file_.size()));
  }

  template <typename T>
  T number(uint64_t offset) const {
    need(offset, sizeof(T), "a number");
    T value;
    std::memcpy(&value, file_.data() + offset, sizeof value);
    return value;
  }

  std::string text(uint64_t offset, size_t count) const {
    need(offset, count, "a name");
    return {file_.data() + offset, count};
  }

 private:
  const MappedFile& file_;
};

struct Directory {
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t count = 0;
};

std::optional<uint64_t> find_end_record(const Archive& archive) {
  if (archive.size() < zip::kEndRecordSize) return std::nullopt;
  const uint64_t last = archive.size() - zip::kEndRecordSize;
  const uint64_t first = last > 0xFFFF ? last - 0xFFFF : 0;  // a comment of up to 64 KB may follow
  for (uint64_t at = last + 1; at-- > first;)
    if (archive.number<uint32_t>(at) == zip::kEndRecord &&
        archive.number<uint16_t>(at + 20) == last - at)
      return at;
  return std::nullopt;
}

Directory find_directory(const Archive& archive) {
  const auto end = find_end_record(archive);
  if (!end) {
    const bool pickle = archive.size() >= 2 && archive.number<uint8_t>(0) == 0x80;
    archive.fail(pickle ? "it is a bare pickle, not a file of torch.save"
                        : "it is not a zip archive, or its end is missing");
  }
  Directory found{archive.number<uint32_t>(*end + 16), archive.number<uint32_t>(*end + 12),
                  archive.number<uint16_t>(*end + 10)};
  const bool large =
      found.offset == zip::kIn64 || found.size == zip::kIn64 || found.count == zip::kIn64Short;
  if (large && *end >= zip::kEndLocator64Size &&
      archive.number<uint32_t>(*end - zip::kEndLocator64Size) == zip::kEndLocator64) {
    const auto at = archive.number<uint64_t>(*end - zip::kEndLocator64Size + 8);
    archive.need(at, zip::kEndRecord64Size, "the 64-bit end record");
    if (archive.number<uint32_t>(at) != zip::kEndRecord64)
      archive.fail("the 64-bit end record is damaged");
    found = {archive.number<uint64_t>(at + 48), archive.number<uint64_t>(at + 40),
             archive.number<uint64_t>(at + 32)};
  }
  archive.need(found.offset, found.size, "the directory");
  return found;
}

struct Member {
  std::string name;
  uint64_t header = 0;  // offset of the local header
  ZipEntry entry;
};

/// Reads those of size and header offset that did not fit 32 bits.
void read_extra64(const Archive& archive, uint64_t extra, uint64_t extra_end, uint64_t& size,
                  uint64_t& packed, uint64_t& header) {
  while (extra + 4 <= extra_end) {
    const auto id = archive.number<uint16_t>(extra);
    const uint64_t end = extra + 4 + archive.number<uint16_t>(extra + 2);
    extra += 4;
    if (end > extra_end) return;
    if (id == zip::kExtra64) {
      for (auto* value : {&size, &packed, &header}) {
        if (*value != zip::kIn64 || extra + 8 > end) continue;
        *value = archive.number<uint64_t>(extra);
        extra += 8;
      }
      return;
    }
    extra = end;
  }
}

/// One row of the directory; `at` moves to the next.
Member read_member(const Archive& archive, uint64_t& at, uint64_t directory_end) {
  if (at + zip::kCentralHeaderSize > directory_end ||
      archive.number<uint32_t>(at) != zip::kCentralHeader)
    archive.fail(fmt::format("the directory is damaged at byte {}", at));
  const auto flags = archive.number<uint16_t>(at + 8);
  const auto method = archive.number<uint16_t>(at + 10);
  uint64_t packed = archive.number<uint32_t>(at + 20);
  uint64_t size = archive.number<uint32_t>(at + 24);
  uint64_t header = archive.number<uint32_t>(at + 42);
  const uint64_t name_at = at + zip::kCentralHeaderSize;
  const uint64_t extra = name_at + archive.number<uint16_t>(at + 28);
  const uint64_t comment = extra + archive.number<uint16_t>(at + 30);
  const uint64_t next = comment + archive.number<uint16_t>(at + 32);
  if (next > directory_end) archive.fail(fmt::format("the directory is damaged at byte {}", at));
  read_extra64(archive, extra, comment, size, packed, header);

  Member member{archive.text(name_at, size_t(extra - name_at)), header, {}};
  if (method != 0 || packed != size || (flags & zip::kFlagEncrypted) != 0)
    archive.fail("entry '" + member.name +
                 "' is compressed or encrypted, torch.save stores entries as they are");
  archive.need(header, zip::kLocalHeaderSize, "an entry");
  if (archive.number<uint32_t>(header) != zip::kLocalHeader)
    archive.fail("entry '" + member.name + "' does not begin where the directory says");
  const uint64_t content = header + zip::kLocalHeaderSize + archive.number<uint16_t>(header + 26) +
                           archive.number<uint16_t>(header + 28);
  archive.need(content, size, ("entry '" + member.name + "'").c_str());
  member.entry = {size_t(content), size_t(size), archive.number<uint32_t>(at + 16)};
  at = next;
  return member;
}

void check_overlap(const Archive& archive, std::vector<Member>& members,
                   uint64_t directory_offset) {
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return a.header < b.header; });
  uint64_t end = 0;
  for (const auto& member : members) {
    if (member.header < end) archive.fail("entry '" + member.name + "' overlaps another");
    end = member.entry.offset + member.entry.size;
  }
  if (end > directory_offset) archive.fail("an entry overlaps the directory");
}

}  // namespace

ZipDirectory::ZipDirectory(const MappedFile& file) {
  const Archive archive(file);
  const auto directory = find_directory(archive);
  const uint64_t end = directory.offset + directory.size;
  std::vector<Member> members;
  for (uint64_t at = directory.offset; members.size() < directory.count;)
    members.push_back(read_member(archive, at, end));
  check_overlap(archive, members, directory.offset);
  for (auto& member : members) {
    paths_.push_back(member.name);
    const auto slash = member.name.find('/');
    if (slash == std::string::npos) continue;
    if (!entries_.emplace(member.name.substr(slash + 1), member.entry).second)
      archive.fail("entry '" + member.name + "' appears twice");
  }
}

const ZipEntry* ZipDirectory::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

}  // namespace gradus
