// A run that is resumed with a damaged gradus_state.json either goes on to its end or is refused
// with an Error.
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include <filesystem>
#include <fstream>

#include "../integration/dropout_run.h"
#include "../silent_log.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/temporary_folder.h"

namespace {

namespace fs = std::filesystem;

void train_two_steps(const fs::path& folder, const std::string& save_strategy,
                     const gradus::Resume& resume) {
  auto args = gradus::testing::dropout_arguments(folder.string(), 2);
  args.eval_strategy = "no";
  args.metric_for_best_model.reset();
  args.save_strategy = save_strategy;
  args.max_steps = save_strategy == "no" ? 3 : 2;
  auto options = gradus::testing::dropout_run(args);
  options.callbacks = {std::make_shared<gradus::EmaCallback>(0.9)};
  gradus::Trainer(std::move(options)).train(resume);
}

/// Writes the state and, so that it is read at all, its checksum into the manifest.
void replace_state(const fs::path& checkpoint, const char* data, size_t size) {
  std::ofstream(checkpoint / "gradus_state.json", std::ios::binary)
      .write(data, std::streamsize(size));
  auto manifest = gradus::Manifest::read(checkpoint / "manifest.json");
  manifest.files["gradus_state.json"] = {size, gradus::checksum_of(data, size)};
  std::ofstream(checkpoint / "manifest.json") << manifest.to_text();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto silence = gradus::set_log_sink(std::make_shared<gradus::testing::SilentLog>());
  static const gradus::fuzz::TemporaryFolder temporary("state");
  static const auto& folder = temporary.path;
  static const bool ready = [] {
    train_two_steps(folder, "steps", gradus::Resume::none());
    return true;
  }();
  static_cast<void>(ready);
  const auto checkpoint = folder / "checkpoint-2";
  replace_state(checkpoint, reinterpret_cast<const char*>(data), size);
  try {
    train_two_steps(folder, "no", gradus::Resume::from(checkpoint));
  } catch (const gradus::Error&) {
  }
  return 0;
}
