#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/device/attention_backend.h>
#include <gradus/device/cpu_matmul.h>
#include <gradus/device/gpu.h>
#include <gradus/device/runtime.h>
#include <gradus/version.h>
#include <torch/version.h>

#include <filesystem>
#include <thread>

#include "cli.h"

namespace gradus::cli {
namespace {

bool has_fashion_mnist() {
  return std::filesystem::exists("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz");
}

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

double gib(int64_t bytes) { return double(bytes) / double(1 << 30); }

nlohmann::ordered_json cards_json(const std::vector<device::GpuInfo>& cards) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& card : cards)
    list.push_back({{"name", card.name},
                    {"memory", card.memory},
                    {"free", card.free},
                    {"compute_capability", fmt::format("{}.{}", card.major, card.minor)},
                    {"multiprocessors", card.multiprocessors},
                    {"driver", card.driver}});
  return list;
}

nlohmann::ordered_json attention_json(const std::vector<device::AttentionTime>& times) {
  auto found = nlohmann::ordered_json::object();
  for (const auto& time : times) found[time.name] = time.milliseconds;
  return found;
}

// The implementations by speed, for bfloat16, 16 rows of 1,024 tokens, 12 heads of 64; a run
// measures its own shape.
std::string attention_line(const std::vector<device::AttentionTime>& times) {
  std::string text;
  for (const auto& time : times)
    text += fmt::format("{}{} {:.2f} ms", text.empty() ? "" : ", ", time.name, time.milliseconds);
  return text + " (forward and backward, 16 × 1024 tokens, 12 heads of 64, bfloat16)";
}

std::string products_line(const device::CpuMatmulSpeed& speed) {
  if (speed.onednn == 0) return fmt::format("{:.0f} GFLOP/s", speed.torch);
  const auto text = fmt::format("torch {:.0f}, oneDNN {:.0f} GFLOP/s", speed.torch, speed.onednn);
  return speed.onednn < 1.2 * speed.torch
             ? text
             : text + ": --cpu_matmul onednn makes training on this CPU faster";
}

}  // namespace

int doctor(Words words) {
  std::vector<std::string> rest(words.begin(), words.end());
  const bool json = take_json_flag(rest);
  if (!rest.empty() && rest[0] != "--help")
    throw Error("G-CLI-4", ErrorKind::usage,
                "gradus doctor does not take '" + rest[0] + "'; expected --json or nothing",
                "Leave it out.");
  const auto gpus = device::gpu_count();
  const auto cards = device::gpu_infos();
  const auto attention =
      gpus > 0 ? device::measure_attention(
                     {.batch = 16, .tokens = 1024, .heads = 12, .key_heads = 12, .width = 64},
                     {torch::kCUDA, 0})
               : std::vector<device::AttentionTime>();
  const auto products = device::measure_cpu_matmul();
  const nlohmann::ordered_json found = {
      {"gradus", kVersion},
      {"libtorch", TORCH_VERSION},
      {"cores", int64_t(std::thread::hardware_concurrency())},
      {"threads", at::get_num_threads()},
      {"cpu_matmul", {{"torch", products.torch}, {"onednn", products.onednn}}},
      {"gpus", gpus},
      {"cuda_plugin", device::has_plugin() ? nlohmann::ordered_json(device::plugin_text())
                                           : nlohmann::ordered_json(nullptr)},
      {"cards", cards_json(cards)},
      {"attention", attention_json(attention)},
      {"tokenizers", has_tokenizers()},
      {"arrow", has_arrow()},
      {"fashion_mnist", has_fashion_mnist()},
  };
  if (json) {
    print_line(dump_json(found, 2));
    return 0;
  }
  const auto line = [](const char* what, const std::string& text) {
    print_line(fmt::format("  {:<14} {}", what, text));
  };
  print_line("gradus doctor");
  line("gradus", kVersion);
  line("LibTorch", TORCH_VERSION);
  line("threads",
       fmt::format("{} of {} cores", at::get_num_threads(), std::thread::hardware_concurrency()));
  line("products", products_line(products));
  line("GPU", gpus > 0 ? fmt::format("{} found", gpus) : "none found: training runs on the CPU");
  for (const auto& card : cards)
    line("", fmt::format("{}, {:.0f} GiB ({:.0f} free), compute capability {}.{}, {} "
                         "multiprocessors, driver for CUDA {}.{}",
                         card.name, gib(card.memory), gib(card.free), card.major, card.minor,
                         card.multiprocessors, card.driver / 1000, card.driver % 1000 / 10));
  if (gpus > 0) line("CUDA plugin", device::plugin_text());
  if (!attention.empty()) line("attention", attention_line(attention));
  line("tokenizers",
       has_tokenizers()
           ? "built in"
           : "missing: text tasks need it. Install cargo 1.85 or later and build again");
  line("Arrow",
       has_arrow() ? "built in (Parquet, Arrow, CSV)" : "missing: run tools/setup and build again");
  line("Fashion-MNIST",
       has_fashion_mnist() ? "installed" : "missing: apt-get install dataset-fashion-mnist");
  return 0;
}

}  // namespace gradus::cli
