#pragma once

#include <torch/types.h>

#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace gradus::device {

/// Loads LibTorch's CUDA part when it is installed beside the CPU part and a driver exists. Returns
/// whether CUDA can be used. Cheap after the first call.
///
/// Call it before anything asks torch whether CUDA is available: torch remembers the first answer.
bool load_cuda();

/// The device a run uses: the GPU with the number `local_rank`, or the CPU when `use_cpu` is set or
/// there is no GPU.
torch::Device pick_device(bool use_cpu, int64_t local_rank);

/// Makes `device`, a GPU, the one that torch takes in this thread where none is named.
void set_current_gpu(torch::Device device);

/// Number of GPUs that torch can use; 0 without CUDA.
int64_t gpu_count();

/// Seeds torch's default generator of every device, and `numpy_random()`.
void seed_all(int64_t seed);

/// The state of torch's CPU generator (uint8).
torch::Tensor get_cpu_rng_state();
/// Restores what `get_cpu_rng_state` returned.
void set_cpu_rng_state(const torch::Tensor& state);
/// The generator state of each GPU; empty without one.
std::vector<torch::Tensor> get_gpu_rng_states();
/// Restores what `get_gpu_rng_states` returned. States of GPUs that do not exist are ignored.
void set_gpu_rng_states(const std::vector<torch::Tensor>& states);

/// Allows deterministic algorithms only (`full_determinism`). On a GPU an operation that has none
/// throws.
void use_deterministic_algorithms();
/// Whether float32 matrix products may use TF32 on a GPU.
void allow_tf32(bool allow);

/// Returns torch's cached memory blocks to the device. Does nothing on the CPU.
void empty_cache(torch::Device device);
/// Memory that torch has allocated on a device, in bytes.
struct MemoryUse {
  int64_t allocated = 0;  ///< Now.
  int64_t peak = 0;       ///< The most since the last `reset_peak_memory`.
};
/// The memory in use on `device`; zeros on the CPU.
MemoryUse memory_use(torch::Device device);
/// Starts a new measurement of `MemoryUse::peak`.
void reset_peak_memory(torch::Device device);
/// Whether a failure says that memory ran out, in the words of torch's allocators.
bool is_out_of_memory(const std::exception& error);

/// Sets the number of threads of torch's CPU operations. Unset leaves torch's choice, all cores.
void set_num_threads(std::optional<int64_t> threads);

/// Turns on autocast to `dtype` for this thread while the object lives, and restores the previous
/// setting at its end. Does nothing for float32.
class AutocastGuard {
 public:
  /// Turns autocast on for operations on `device`.
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
