#pragma once

#include <torch/types.h>

#include <cstdint>

namespace gradus::kernels {

/// `classes` rounded up, because an odd number of columns falls to slow matrix products.
int64_t padded_classes(int64_t classes);
/// How many rows of logits with `columns` columns are formed at a time, at most `most` logits.
int64_t rows_per_chunk(int64_t rows, int64_t columns,
                       int64_t most_logits = int64_t{1} << 28);  // 0.5 GiB in bfloat16
/// (classes, …) -> (padded, …) with zeros behind; `x` itself where nothing is missing.
torch::Tensor padded_rows(const torch::Tensor& x, int64_t padded);

}  // namespace gradus::kernels
