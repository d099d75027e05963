#include <gradus/config/option_set.h>
#include <gradus/config/training_options.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include <fstream>

#include "../silent_log.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/temporary_folder.h"

/// Any bytes as an option file in YAML, and in JSON, set options or give `gradus::Error`.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto silence = gradus::set_log_sink(std::make_shared<gradus::testing::SilentLog>());
  static const gradus::fuzz::TemporaryFolder temporary("options");
  for (const char* extension : {".yaml", ".json"}) {
    const auto file = temporary.path / (std::string("options") + extension);
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), std::streamsize(size));
    gradus::TrainingArguments args;
    gradus::OptionSet options;
    options.add(args, gradus::training_options());
    try {
      options.read_file(file);
      options.check();
    } catch (const gradus::Error&) {
    }
  }
  return 0;
}
