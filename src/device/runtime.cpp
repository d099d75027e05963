#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/core/impl/alloc_cpu.h>
#include <dlfcn.h>
#include <gradus/core/log.h>
#include <gradus/core/numpy_random.h>
#include <gradus/device/runtime.h>
#include <torch/cuda.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "device/plugin_loader.h"

namespace gradus::device {
namespace {

// The folder libtorch_cpu.so was loaded from.
std::filesystem::path torch_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&at::globalContext), &info) == 0 ||
      info.dli_fname == nullptr)
    return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

at::Generator gpu_generator(int64_t index) {
  return at::globalContext().defaultGenerator(at::Device(at::kCUDA, c10::DeviceIndex(index)));
}

}  // namespace

bool load_cuda() {
  static const bool loaded = [] {
    if (!driver_is_there()) return false;
    if (loaded_plugin().plugin != nullptr)
      return torch::cuda::is_available();  // it brought LibTorch's part along
    const auto library = torch_folder() / "libtorch_cuda.so";
    if (!std::filesystem::exists(library)) return false;
    if (::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      log_warning(std::string("There is a GPU, but LibTorch's CUDA part could not be loaded: ") +
                  ::dlerror());
      return false;
    }
    return torch::cuda::is_available();
  }();
  return loaded;
}

int64_t gpu_count() { return load_cuda() ? int64_t(torch::cuda::device_count()) : 0; }

torch::Device pick_device(bool use_cpu, int64_t local_rank) {
  if (use_cpu || gpu_count() == 0) return torch::kCPU;
  return {torch::kCUDA, c10::DeviceIndex(std::max<int64_t>(local_rank, 0))};
}

void set_current_gpu(torch::Device device) {
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

void seed_all(int64_t seed) {
  numpy_random().seed(uint64_t(seed));
  at::Generator cpu = at::globalContext().defaultGenerator(at::kCPU);
  {
    const std::scoped_lock lock(cpu.mutex());
    cpu.set_current_seed(uint64_t(seed));
  }
  for (int64_t i = 0; i < gpu_count(); ++i) {
    auto gpu = gpu_generator(i);
    const std::scoped_lock lock(gpu.mutex());
    gpu.set_current_seed(uint64_t(seed));
  }
}

torch::Tensor get_cpu_rng_state() {
  auto generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void set_cpu_rng_state(const torch::Tensor& state) {
  auto generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state.contiguous());
}

std::vector<torch::Tensor> get_gpu_rng_states() {
  std::vector<torch::Tensor> states;
  for (int64_t i = 0; i < gpu_count(); ++i) {
    auto generator = gpu_generator(i);
    const std::scoped_lock lock(generator.mutex());
    states.push_back(generator.get_state());
  }
  return states;
}

void set_gpu_rng_states(const std::vector<torch::Tensor>& states) {
  const auto count = std::min<int64_t>(gpu_count(), int64_t(states.size()));
  for (int64_t i = 0; i < count; ++i) {
    auto generator = gpu_generator(i);
    const std::scoped_lock lock(generator.mutex());
    generator.set_state(states[size_t(i)].contiguous());
  }
}

void use_deterministic_algorithms() {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // read when cuBLAS starts
  // As in transformers an operation without a deterministic form is an error; only so attention
  // uses its own. On the CPU there is none to miss.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/!load_cuda());
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
}

void allow_tf32(bool allow) {
  at::globalContext().setFloat32MatmulPrecision(allow ? "high" : "highest");
}

void empty_cache(torch::Device device) {
  if (device.is_cuda()) at::getDeviceAllocator(device.type())->emptyCache();
}

MemoryUse memory_use(torch::Device device) {
  if (!device.is_cuda()) return {};
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  const auto& bytes = stats.allocated_bytes[size_t(c10::CachingAllocator::StatType::AGGREGATE)];
  return {bytes.current, bytes.peak};
}

void reset_peak_memory(torch::Device device) {
  if (device.is_cuda()) at::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

bool is_out_of_memory(const std::exception& error) {
  const std::string_view text = error.what();
  for (const auto* phrase : {" out of memory.", "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.",
                             "DefaultCPUAllocator: can't allocate memory"})
    if (text.find(phrase) != std::string_view::npos) return true;
  return false;
}

void set_num_threads(std::optional<int64_t> threads) {
  if (threads) at::set_num_threads(int(*threads));
}

AutocastGuard::AutocastGuard(torch::DeviceType device, torch::ScalarType dtype)
    : device_(device), active_(dtype != torch::kFloat) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device);
  was_dtype_ = at::autocast::get_autocast_dtype(device);
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, was_dtype_);
}

}  // namespace gradus::device
