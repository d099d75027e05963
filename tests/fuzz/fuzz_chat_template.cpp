#include <gradus/core/error.h>

#include "fuzz/fuzz_target.h"
#include "text/backend.h"

namespace {

const nlohmann::ordered_json& conversation() {
  static const auto context = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                 {"role": "assistant", "content": "Hello!", "tool_calls": [{"name": "f"}]}],
    "tools": [{"name": "f", "parameters": {"type": "object", "properties": {"x": [1, 2.5, null]}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 3})");
  return context;
}

}  // namespace

/// Any bytes as a chat template give a text or `gradus::Error`.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const gradus::text::ChatTemplate compiled({reinterpret_cast<const char*>(data), size});
    static_cast<void>(compiled.render(conversation(), /*want_spans=*/true));
  } catch (const gradus::Error&) {
  }
  return 0;
}
