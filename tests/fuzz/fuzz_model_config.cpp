// config.json and generation_config.json with damage: every value is either read or refused with an
// Error.
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/generation_config.h>
#include <gradus/models/layers/rotary.h>

#include <cctype>
#include <string_view>

#include "fuzz/fuzz_target.h"
#include "models/bert/bert_config.h"
#include "models/llama/llama_config.h"
#include "models/t5/t5_stack.h"

namespace {

/// Sizes that are merely large are no mistake, and would only fill the memory here.
bool has_large_number(std::string_view text) {
  const auto is_digit = [](char letter) {
    return std::isdigit(static_cast<unsigned char>(letter)) != 0;
  };
  size_t run = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    run = is_digit(text[i]) ? run + 1 : 0;
    if (run > 5) return true;
    const bool exponent = (text[i] == 'e' || text[i] == 'E') && i > 0 &&
                          (is_digit(text[i - 1]) || text[i - 1] == '.');
    if (exponent && i + 1 < text.size() && text[i + 1] != '-') return true;
  }
  return false;
}

template <class F>
void attempt(F&& f) {
  try {
    f();
  } catch (const gradus::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (has_large_number(text)) return 0;
  attempt([&] {
    const auto values = gradus::parse_json(text);
    attempt(
        [&] { gradus::complete_options({}, gradus::GenerationConfig::from_json(values).options); });
    attempt([&] { gradus::num_labels(values); });
    attempt([&] { const gradus::T5Config config(values); });
    attempt([&] { gradus::check_span_labels(values); });
    attempt([&] { const gradus::BertConfig config(values); });
    attempt([&] {
      const gradus::LlamaConfig config(values);
      gradus::layers::RotaryEmbedding(values, config.head_width);
    });
  });
  return 0;
}
