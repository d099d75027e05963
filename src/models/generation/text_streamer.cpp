#include <gradus/models/text_streamer.h>

#include <algorithm>
#include <array>
#include <utility>

namespace gradus {

namespace {

/// The last code point of a text in UTF-8; 0 when it is empty or cut short.
uint32_t last_code_point(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 4) {
    const auto byte = static_cast<unsigned char>(text[--begin]);
    if ((byte & 0xC0) == 0x80) continue;
    const size_t length = byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    if (length != text.size() - begin) return 0;
    uint32_t code = length == 1 ? byte : byte & (0xFFu >> (length + 1));
    for (size_t i = begin + 1; i < text.size(); ++i)
      code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
    return code;
  }
  return 0;
}

/// Scripts without spaces between words: every sign can be written at once.
bool is_ideograph(uint32_t code) {
  constexpr std::array<std::pair<uint32_t, uint32_t>, 8> kRanges = {{{0x4E00, 0x9FFF},
                                                                     {0x3400, 0x4DBF},
                                                                     {0x20000, 0x2A6DF},
                                                                     {0x2A700, 0x2B73F},
                                                                     {0x2B740, 0x2B81F},
                                                                     {0x2B820, 0x2CEAF},
                                                                     {0xF900, 0xFAFF},
                                                                     {0x2F800, 0x2FA1F}}};
  return std::any_of(kRanges.begin(), kRanges.end(), [&](const auto& range) {
    return code >= range.first && code <= range.second;
  });
}

}  // namespace

TextStreamer::TextStreamer(std::function<std::string(const std::vector<int64_t>&)> decode,
                           std::function<void(std::string_view)> write, bool skip_prompt)
    : decode_(std::move(decode)), write_(std::move(write)), skip_prompt_(skip_prompt) {}

void TextStreamer::put(std::span<const int64_t> ids) {
  if (std::exchange(at_prompt_, false) && skip_prompt_) return;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  const auto text = decode_(ids_);
  const bool line_ends = text.ends_with('\n');
  const auto space = text.rfind(' ');
  const auto until = line_ends || is_ideograph(last_code_point(text)) ? text.size()
                     : space == std::string::npos                     ? 0
                                                                      : space + 1;
  if (until > written_) write_(std::string_view(text).substr(written_, until - written_));
  written_ = std::max(written_, until);
  if (line_ends) {
    ids_.clear();
    written_ = 0;
  }
}

void TextStreamer::end() {
  const auto text = ids_.empty() ? std::string() : decode_(ids_);
  if (text.size() > written_) write_(std::string_view(text).substr(written_));
  ids_.clear();
  written_ = 0;
  at_prompt_ = true;
}

}  // namespace gradus
