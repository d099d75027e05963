#pragma once

#include <torch/types.h>

namespace gradus {

/// Throws `Error` G-GPU-2 where `device` has no products in 8 bits.
void check_fp8_device(torch::Device device);

}  // namespace gradus
