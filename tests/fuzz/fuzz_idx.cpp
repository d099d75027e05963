#include <gradus/core/error.h>

#include "data/idx_file.h"
#include "fuzz/fuzz_target.h"

/// Any bytes give values that fit their shape, or `gradus::Error`.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const size_t dimensions : {1, 3}) {
    try {
      const auto file = gradus::data::parse_idx(
          std::string_view(reinterpret_cast<const char*>(data), size), dimensions, "input");
      size_t count = 1;
      for (const int64_t length : file.shape) count *= size_t(length);
      if (file.values.size() != count) __builtin_trap();
    } catch (const gradus::Error&) {
    }
  }
  return 0;
}
