#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/models/generation_config.h>

#include "fuzz/fuzz_target.h"
#include "fuzz/memory_file.h"

/// Any bytes as generation_config.json, and as the part of config.json that means the same, give
/// options or `gradus::Error`; what was read can be written and read again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const gradus::fuzz::MemoryFile file(data, size);
  try {
    const auto config = gradus::GenerationConfig::load(file.path());
    static_cast<void>(gradus::complete_options({}, config.options));
    static_cast<void>(gradus::GenerationConfig::from_json(config.to_json()));
  } catch (const gradus::Error&) {
  }
  try {
    static_cast<void>(gradus::GenerationConfig::from_config_file(gradus::read_json(file.path())));
  } catch (const gradus::Error&) {
  }
  return 0;
}
