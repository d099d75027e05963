#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/device/runtime.h>
#include <gradus/version.h>
#include <torch/version.h>

#include <filesystem>
#include <thread>

#include "cli.h"

namespace gradus::cli {
namespace {

bool has_fashion_mnist() { return std::filesystem::exists("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"); }

bool has_tokenizers() {
#ifdef GRADUS_WITH_TOKENIZERS
  return true;
#else
  return false;
#endif
}

bool has_arrow() {
#ifdef GRADUS_WITH_ARROW
  return true;
#else
  return false;
#endif
}

}  // namespace

int doctor(Words words) {
  std::vector<std::string> rest(words.begin(), words.end());
  const bool json = take_json_flag(rest);
  if (!rest.empty() && rest[0] != "--help") throw Error("G-CLI-4", ErrorKind::usage, "gradus doctor does not take '" + rest[0] + "'; expected --json or nothing", "Leave it out.");
  const auto gpus = device::gpu_count();
  const nlohmann::ordered_json found = {
      {"gradus", kVersion},
      {"libtorch", TORCH_VERSION},
      {"cores", int64_t(std::thread::hardware_concurrency())},
      {"threads", at::get_num_threads()},
      {"gpus", gpus},
      {"tokenizers", has_tokenizers()},
      {"arrow", has_arrow()},
      {"fashion_mnist", has_fashion_mnist()},
  };
  if (json) {
    print_line(dump_json(found, 2));
    return 0;
  }
  const auto line = [](const char* what, const std::string& text) { print_line(fmt::format("  {:<14} {}", what, text)); };
  print_line("gradus doctor");
  line("gradus", kVersion);
  line("LibTorch", TORCH_VERSION);
  line("threads", fmt::format("{} of {} cores", at::get_num_threads(), std::thread::hardware_concurrency()));
  line("GPU", gpus > 0 ? fmt::format("{} found", gpus) : "none found: training runs on the CPU");
  line("tokenizers", has_tokenizers() ? "built in" : "missing: text tasks need it. Install cargo 1.85 or later and build again");
  line("Arrow", has_arrow() ? "built in (Parquet, Arrow, CSV)" : "missing: run tools/setup and build again");
  line("Fashion-MNIST", has_fashion_mnist() ? "installed" : "missing: apt-get install dataset-fashion-mnist");
  return 0;
}

}  // namespace gradus::cli
