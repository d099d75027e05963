#pragma once

#include <cstdint>

namespace gradus {

/// How gradients travel between processes; most fields are transformers' options `ddp_...`.
struct BucketOptions {
  /// `ddp_bucket_cap_mb`, in bytes: how much is sent at once.
  int64_t bucket_cap_bytes = int64_t{25} << 20;
  /// The same for the first bucket, which is small so that sending starts early.
  int64_t first_bucket_bytes = int64_t{1} << 20;
  /// `ddp_find_unused_parameters`: a parameter that no process used keeps no gradient. Without it
  /// every process must use every parameter, and one that did not is an error.
  bool find_unused_parameters = false;
  /// `ddp_static_graph`: every step uses the parameters that the first one used, and no others.
  /// Buckets need not wait for the rest, which may stay unused. A further one is an error.
  bool static_graph = false;
  /// The number format in which gradients travel. In half precision half as many bytes are sent,
  /// and the mean is rounded.
  enum class Format { same, fp16, bf16 };
  /// `same` is that of the gradients.
  Format format = Format::same;
};

}  // namespace gradus
