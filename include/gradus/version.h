#pragma once

namespace gradus {

constexpr const char* kVersion = "0.1.0";

}  // namespace gradus
