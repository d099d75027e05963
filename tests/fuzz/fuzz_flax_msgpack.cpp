#include <gradus/core/error.h>
#include <gradus/formats/flax_msgpack.h>

#include <optional>

#include "fuzz/fuzz_target.h"

/// Any bytes give a tree or `gradus::Error`; a tree that was read can be written and read again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::optional<gradus::FlaxTree> tree;
  try {
    tree = gradus::parse_flax_msgpack({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const gradus::Error&) {
  }
  if (tree)
    gradus::parse_flax_msgpack(gradus::flax_msgpack_bytes(*tree, {.max_chunk_size = 64}),
                               "written again");
  return 0;
}
