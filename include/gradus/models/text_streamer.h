#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradus {

/// Text that appears while it is generated, as transformers' `TextStreamer`:
///
///     TextStreamer streamer([&](const auto& ids) { return tokenizer->decode(ids,
///     {.skip_special_tokens = true}); }, print); model->generate(inputs, {.streamer = [&](auto
///     ids) { streamer.put(ids); }}); streamer.end();
///
/// Whole words are written, because the tokens of an unfinished one may still change how it reads.
/// Thread-safety: none; the callbacks run on the caller's thread.
class TextStreamer {
 public:
  /// `decode` makes text of ids, `write` takes the pieces. The first ids put are the prompt; with
  /// `skip_prompt` they are not written.
  TextStreamer(std::function<std::string(const std::vector<int64_t>&)> decode,
               std::function<void(std::string_view)> write, bool skip_prompt = true);

  void put(std::span<const int64_t> ids);
  /// Writes what is left and makes ready for the next text.
  void end();

 private:
  std::function<std::string(const std::vector<int64_t>&)> decode_;
  std::function<void(std::string_view)> write_;
  bool skip_prompt_, at_prompt_ = true;
  std::vector<int64_t> ids_;  ///< since the last line break
  size_t written_ = 0;        ///< bytes of their text that are written
};

}  // namespace gradus
