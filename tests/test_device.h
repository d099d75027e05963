#pragma once

#include <gradus/device/runtime.h>

#include <cstdlib>
#include <iostream>
#include <string>

namespace gradus::testing {

/// Whether tests that can run on either device run on a GPU: GRADUS_TEST_DEVICE=gpu, which `ctest
/// -L gpu` sets. Ends the program with ctest's code for a skipped test where there is none.
inline bool on_gpu() {
  static const bool wanted = [] {
    const char* device = std::getenv("GRADUS_TEST_DEVICE");
    if (device == nullptr || std::string(device) != "gpu") return false;
    if (device::load_cuda()) return true;
    std::cout << "no GPU here\n" << std::flush;
    std::_Exit(77);
  }();
  return wanted;
}

/// Asked before any test can: LibTorch looks for GPUs only once, and must have its CUDA part by
/// then.
inline const bool kAskedForTheDevice = (on_gpu(), true);

inline torch::Device test_device() {
  return on_gpu() ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
}

}  // namespace gradus::testing
