#pragma once

/// Fused operations. Each has a plain form made of ATen operations and, on a GPU, a kernel in the
/// CUDA plugin.
namespace gradus::kernels {

/// Which form of an operation runs.
enum class Form {
  /// The plugin's kernel where it applies (GPU, dtype, width), otherwise plain ATen operations.
  automatic,
  /// Always plain ATen operations: to compare, or to rule out a kernel as the cause of a problem.
  plain,
  /// The operation with its own backward on every device, with ATen operations inside where there
  /// is no kernel. For tests.
  fused,
};

/// Sets the form for the whole process and returns the previous one. Thread-safe; set it before
/// training starts.
Form set_form(Form form);
/// The current form; `automatic` unless it was set.
Form current_form();

/// Whether the CUDA plugin is loaded and has registered its kernels.
bool have_cuda_kernels();

}  // namespace gradus::kernels
