#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

namespace gradus::fuzz {

/// A folder for readers that open a path in one; as a static of a fuzzer it goes when that ends.
struct TemporaryFolder {
  explicit TemporaryFolder(const std::string& name)
      : path(std::filesystem::temp_directory_path() /
             ("gradus_fuzz_" + name + "_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path path;
};

}  // namespace gradus::fuzz
