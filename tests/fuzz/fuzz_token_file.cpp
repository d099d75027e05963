#include <gradus/core/error.h>
#include <gradus/data/token_file.h>

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "fuzz/fuzz_target.h"

/// Any bytes as a token file, and as the index of one, give ids or `gradus::Error`.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto folder = [] {
    const auto path = std::filesystem::temp_directory_path() /
                      ("gradus_fuzz_tokens_" + std::to_string(::getpid()));
    std::filesystem::create_directories(path);
    std::ofstream(path / "indexed.bin", std::ios::binary) << std::string(4000, 'x');
    return path;
  }();
  const auto write = [&](const char* name) {
    std::ofstream(folder / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), std::streamsize(size));
  };
  try {
    write("plain.bin");
    const auto windows =
        gradus::token_windows(folder / "plain.bin", {.block_size = 16, .vocab_size = 60000});
    for (int64_t i = 0; i < windows->size(); ++i) windows->get(i);
  } catch (const gradus::Error&) {
  }
  try {
    write("indexed.idx");
    const auto documents = gradus::token_documents(folder / "indexed.bin");
    for (int64_t i = 0; i < std::min<int64_t>(documents->size(), 1000); ++i) documents->get(i);
  } catch (const gradus::Error&) {
  }
  return 0;
}
