#pragma once

#include <gradus/device/gpu.h>

namespace gradus::device {

/// c10d's group with NCCL; null when the plugin was built without NCCL's header.
c10::intrusive_ptr<c10d::Backend> make_nccl_group(const NcclOptions& options);

}  // namespace gradus::device
