#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

namespace gradus::device {

/// Loads LibTorch's CUDA part when it is installed beside the CPU part and a driver is there. Cheap
/// after the first call. It must come before anything in the process asks torch whether CUDA is
/// available.
bool load_cuda();

/// The device a run uses: the CPU when asked for or when there is no GPU, else the GPU of this
/// process's local rank.
torch::Device pick_device(bool use_cpu, int64_t local_rank);

int64_t gpu_count();

/// Seeds the generators of every device.
void seed_all(int64_t seed);

/// States of the generators; `set` takes what `get` gave.
torch::Tensor get_cpu_rng_state();
void set_cpu_rng_state(const torch::Tensor& state);
std::vector<torch::Tensor> get_gpu_rng_states();
void set_gpu_rng_states(const std::vector<torch::Tensor>& states);

/// Deterministic kernels only (`full_determinism`): on a GPU an operation without a deterministic
/// form throws.
void use_deterministic_algorithms();
void allow_tf32(bool allow);

/// Gives cached blocks back to the device.
void empty_cache(torch::Device device);
/// Bytes allocated now and at most since `reset_peak_memory`; zeros on the CPU.
struct MemoryUse {
  int64_t allocated = 0;
  int64_t peak = 0;
};
MemoryUse memory_use(torch::Device device);
void reset_peak_memory(torch::Device device);

/// Number of threads kernels use; unset leaves torch's choice (all cores).
void set_num_threads(std::optional<int64_t> threads);

/// Mixed precision for the calls of this thread while it lives. Does nothing for float32.
class AutocastGuard {
 public:
  AutocastGuard(torch::DeviceType device, torch::ScalarType dtype);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  torch::DeviceType device_;
  bool active_;
  bool was_enabled_ = false;
  torch::ScalarType was_dtype_ = torch::kFloat;
};

}  // namespace gradus::device
