#include <gradus/core/error.h>
#include <gradus/formats/weights_folder.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "formats/weight_index.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/temporary_folder.h"

namespace fs = std::filesystem;

/// Any bytes as the index of a model's shards give its tensors, a problem or `gradus::Error`; an
/// index without a problem names at least one tensor, and only files of its folder.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const gradus::fuzz::TemporaryFolder temporary("index");
  static const auto& folder = temporary.path;
  static const bool ready = [] {
    for (const char* shard :
         {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})
      fs::copy_file("tests/parity/formats/fixtures/dtypes.safetensors", folder / shard,
                    fs::copy_options::overwrite_existing);
    return true;
  }();
  static_cast<void>(ready);
  const auto file = folder / "model.safetensors.index.json";
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), std::streamsize(size));
  try {
    const auto index = gradus::formats::read_weight_index(file);
    if (index.problem.empty() && index.files.empty()) std::abort();
    for (const auto& [tensor, name] : index.files)
      if (name.find('/') != std::string::npos) std::abort();
    static_cast<void>(gradus::read_weights_folder(folder));
  } catch (const gradus::Error&) {
  }
  return 0;
}
