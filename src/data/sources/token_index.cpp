#include "data/sources/token_index.h"

#include <fmt/format.h>
#include <gradus/core/error.h>

#include <cstring>
#include <string_view>

namespace gradus::sources {
namespace {

constexpr std::string_view kMagic = "GRADIDX1";

template <class T>
T number_at(const char* data, int64_t offset) {
  T number{};
  std::memcpy(&number, data + offset, sizeof number);
  return number;
}

}  // namespace

TokenIndexHead read_token_index(const char* data, int64_t size, const std::filesystem::path& file) {
  const auto bad = [&](const std::string& reason) {
    return Error("G-SRC-12", ErrorKind::data,
                 fmt::format("cannot read the token index {}: {}", file.string(), reason),
                 "Make it again with gradus tokenize, or remove it to read the ids alone.");
  };
  if (size < kTokenIndexHeadBytes)
    throw bad(fmt::format("{} bytes, expected at least {}", size, kTokenIndexHeadBytes));
  if (std::memcmp(data, kMagic.data(), kMagic.size()) != 0)
    throw bad("it does not begin with GRADIDX1");
  TokenIndexHead head{.width = number_at<uint32_t>(data, 8),
                      .documents = number_at<int64_t>(data, 16),
                      .tokens = number_at<int64_t>(data, 24)};
  if (head.width != 2 && head.width != 4)
    throw bad(fmt::format("ids of {} bytes; expected 2 or 4", head.width));
  const auto entries = (size - kTokenIndexHeadBytes) / 8;
  if (head.documents < 0 || head.tokens < 0 || head.documents != entries - 1 || size % 8 != 0)
    throw bad(
        fmt::format("it promises {} documents, its length fits {}", head.documents, entries - 1));
  if (token_index_entry(data, 0) != 0 || token_index_entry(data, head.documents) != head.tokens)
    throw bad(fmt::format("documents span ids {} to {}; expected 0 to {}",
                          token_index_entry(data, 0), token_index_entry(data, head.documents),
                          head.tokens));
  return head;
}

int64_t token_index_entry(const char* data, int64_t index) {
  return number_at<int64_t>(data, kTokenIndexHeadBytes + index * 8);
}

std::string pack_token_index_head(const TokenIndexHead& head) {
  std::string bytes(kMagic);
  const auto append = [&](auto number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  append(uint32_t(head.width));
  append(uint32_t{0});
  append(head.documents);
  append(head.tokens);
  return bytes;
}

}  // namespace gradus::sources
