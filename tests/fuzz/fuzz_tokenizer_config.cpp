#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/text/tokenizer.h>

#include <filesystem>
#include <fstream>

#include "../silent_log.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/temporary_folder.h"

namespace fs = std::filesystem;

/// Any bytes as tokenizer_config.json beside a good tokenizer.json, and as the two older files that
/// are merged into it, give a tokenizer or `gradus::Error`.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto silence = gradus::set_log_sink(std::make_shared<gradus::testing::SilentLog>());
  static const gradus::fuzz::TemporaryFolder temporary("text");
  static const auto& folder = temporary.path;
  static const bool ready =
      fs::copy_file("tests/parity/text/fixtures/wordpiece/tokenizer.json",
                    folder / "tokenizer.json", fs::copy_options::overwrite_existing);
  static_cast<void>(ready);
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
    const auto file = folder / name;
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), std::streamsize(size));
    try {
      const auto tokenizer = gradus::Tokenizer::from_pretrained(folder);
      static_cast<void>(tokenizer->encode("Hello, world").ids());
      static_cast<void>(tokenizer->all_special_ids());
    } catch (const gradus::Error&) {
    }
    fs::remove(file);
  }
  return 0;
}
