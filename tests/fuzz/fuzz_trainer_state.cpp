#include <gradus/core/error.h>
#include <gradus/train/trainer_state.h>

#include "fuzz/fuzz_target.h"
#include "fuzz/memory_file.h"

/// Any bytes as trainer_state.json give a state that can be written, or `gradus::Error`.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const gradus::fuzz::MemoryFile file(data, size);
  try {
    static_cast<void>(gradus::TrainerState::load_from_json(file.path()).to_text());
  } catch (const gradus::Error&) {
  }
  return 0;
}
