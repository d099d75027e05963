#include <gradus/core/error.h>

#include <array>

#include "fuzz/fuzz_target.h"
#include "text/backend.h"

namespace {

constexpr std::array<std::string_view, 4> kTexts = {
    "", "Hello, the quick brown fox!", "x\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80",
    "[CLS] a  b\n\t<s></s>"};

void use(const gradus::text::Backend& backend) {
  for (const auto text : kTexts) {
    try {
      const auto inputs = backend.encode(std::span(&text, 1), {}, {}, 1);
      std::vector<uint32_t> ids;
      for (const auto id : inputs.at(0).at(0).ids) ids.push_back(uint32_t(id));
      static_cast<void>(backend.decode(ids, /*skip_special_tokens=*/false));
    } catch (const gradus::Error&) {
    }
  }
  static_cast<void>(backend.vocab_size(true));
  static_cast<void>(backend.added_tokens());
  static_cast<void>(backend.component("normalizer"));
}

}  // namespace

/// Any bytes as tokenizer.json give a tokenizer that can be used, or `gradus::Error`.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    nlohmann::json baked;
    use(*gradus::text::Backend::from_json({reinterpret_cast<const char*>(data), size}, "input",
                                          baked));
  } catch (const gradus::Error&) {
  }
  return 0;
}
