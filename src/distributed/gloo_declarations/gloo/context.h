// The Gloo types that <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp> names. LibTorch contains
// and exports Gloo but does not ship its headers. That header holds every Gloo type by pointer, so
// declarations suffice. Nothing of ours creates or derives from these types.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gloo {

namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
