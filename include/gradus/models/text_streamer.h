#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradus {

/// Writes text while it is generated, as transformers' `TextStreamer` does:
///
///     TextStreamer streamer([&](const auto& ids) { return tokenizer->decode(ids); }, print);
///     model->generate(inputs, {.streamer = [&](auto ids) { streamer.put(ids); }});
///     streamer.end();
///
/// Only whole words are written, because further tokens may change the text of an unfinished one.
/// Thread-safety: none; the callbacks run on the caller's thread.
class TextStreamer {
 public:
  /// `decode` turns ids into text, `write` takes the pieces of text. The ids of the first `put` are
  /// the prompt; with `skip_prompt` they are not written.
  TextStreamer(std::function<std::string(const std::vector<int64_t>&)> decode,
               std::function<void(std::string_view)> write, bool skip_prompt = true);

  /// Takes further ids and writes the text that is complete.
  void put(std::span<const int64_t> ids);
  /// Writes the rest. The next `put` starts a new text.
  void end();

 private:
  std::function<std::string(const std::vector<int64_t>&)> decode_;
  std::function<void(std::string_view)> write_;
  bool skip_prompt_, at_prompt_ = true;
  std::vector<int64_t> ids_;  ///< Since the last line break.
  size_t written_ = 0;        ///< Bytes of their text already written.
};

}  // namespace gradus
