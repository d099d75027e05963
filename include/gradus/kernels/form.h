#pragma once

namespace gradus::kernels {

/// Which form of an operation runs.
enum class Form {
  automatic,  ///< the plugin's kernel where it applies (GPU, dtype, width), otherwise plain ATen
              ///< operations
  plain,  ///< always plain ATen operations: to compare with, or to rule a kernel out as the cause
          ///< of something
  fused,  ///< the operation with its own backward on any device, with ATen operations inside where
          ///< there is no kernel (tests)
};

/// Sets the form for the whole process and gives the one before. Thread-safe; best set before
/// training.
Form set_form(Form form);
Form current_form();

/// Whether the CUDA plugin is loaded and has registered its kernels.
bool have_cuda_kernels();

}  // namespace gradus::kernels
