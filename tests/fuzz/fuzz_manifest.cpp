#include <gradus/checkpoint/manifest.h>
#include <gradus/core/error.h>

#include <cstdlib>
#include <fstream>

#include "fuzz/fuzz_target.h"
#include "fuzz/temporary_folder.h"

/// Any bytes as the manifest.json of a checkpoint give a report, never an exception; a manifest
/// that was read can be written and read again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const gradus::fuzz::TemporaryFolder temporary("manifest");
  static const auto& folder = temporary.path;
  static const std::ofstream weights(folder / "model.safetensors");
  const auto file = folder / "manifest.json";
  const auto write = [&](const char* bytes, size_t count) {
    std::ofstream(file, std::ios::binary).write(bytes, std::streamsize(count));
  };
  write(reinterpret_cast<const char*>(data), size);
  const auto report = gradus::verify_checkpoint(folder, gradus::Verify::full);
  if (report.complete() && report.files.empty()) std::abort();
  try {
    const auto text = gradus::Manifest::read(file).to_text();
    write(text.data(), text.size());
  } catch (const gradus::Error&) {
    return 0;
  }
  static_cast<void>(gradus::Manifest::read(file));
  return 0;
}
