#pragma once

/// The library. The names that a program uses stand here; folders with a namespace of their own say
/// so (`gradus::hooks`, `gradus::functional`, `gradus::kernels`, `gradus::device`).
namespace gradus {

/// The version of these headers, "MAJOR.MINOR.PATCH". `gradus --version` prints it.
constexpr const char* kVersion = "0.1.0";

}  // namespace gradus
