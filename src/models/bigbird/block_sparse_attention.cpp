#include "models/bigbird/block_sparse_attention.h"

#include <gradus/core/error.h>
#include <gradus/core/numpy_random.h>
#include <gradus/models/layers/attention.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace gradus::bigbird {

using torch::Tensor;
using Blocks = std::vector<int64_t>;

namespace {

/// The first `count` of `blocks` after numpy's shuffle.
Blocks drawn(const Blocks& blocks, int64_t count) {
  if (int64_t(blocks.size()) < count)
    throw Error("G-MODEL-5", ErrorKind::model,
                fmt::format("num_random_blocks is {}, but a block has only {} to choose from",
                            count, blocks.size()),
                "Set fewer random blocks or a smaller block_size in config.json, or "
                "attention_type to original_full.");
  Blocks chosen;
  for (const auto place : numpy_random().permutation(int64_t(blocks.size())))
    chosen.push_back(blocks[size_t(place)]);
  chosen.resize(size_t(count));
  return chosen;
}

/// `blocks` from `begin` up to `end`, as Python's slices.
void append_slice(Blocks& to, const Blocks& blocks, int64_t begin, int64_t end) {
  const auto most = int64_t(blocks.size());
  end = std::min(end < 0 ? std::max<int64_t>(end + most, 0) : end, most);
  for (auto i = begin; i < end; ++i) to.push_back(blocks[size_t(i)]);
}

/// The rows of one head by the plan of the paper, for the lengths it was made for. It goes by the
/// positions of the model: shorter texts use the first rows.
Blocks rows_of_the_paper(const BlockShape& shape) {
  constexpr int64_t kLastToken = 1024;  // random blocks come from the first tokens only
  const auto all = shape.positions / shape.block_size;
  Blocks middle(size_t(std::max<int64_t>(all - 2, 0)));
  std::iota(middle.begin(), middle.end(), int64_t{1});
  const auto last = kLastToken > 2 * shape.block_size ? kLastToken / shape.block_size - 1 : all - 1;
  Blocks rows;
  for (int64_t block = 1; block < all - 1; ++block) {
    Blocks choice;
    if (block <= 2) {
      append_slice(choice, middle, block + 1, last);
    } else if (block >= all - 3) {
      append_slice(choice, middle, 0, last);
    } else {
      append_slice(choice, middle, 0, std::min(block - 2, last));
      if (block - 2 <= last && block + 1 != last) append_slice(choice, middle, block + 1, last);
    }
    for (const auto chosen : drawn(choice, shape.random_blocks)) rows.push_back(chosen);
  }
  rows.resize(size_t((shape.blocks() - 2) * shape.random_blocks));
  return rows;
}

/// What one block sees at random where the paper has no plan: of the first `end` blocks those that
/// it does not see anyway.
Blocks row_elsewhere(int64_t block, int64_t end, int64_t count) {
  Blocks all(static_cast<size_t>(end)), seen = {block - 1, block, block + 1, 0, end - 1};
  std::iota(all.begin(), all.end(), int64_t{0});
  if (block == 1) seen.push_back(end - 2);
  if (block == end - 2) seen.push_back(1);
  Blocks chosen;
  for (const auto candidate : drawn(all, end))
    if (int64_t(chosen.size()) < count && std::ranges::find(seen, candidate) == seen.end())
      chosen.push_back(candidate);
  return chosen;
}

Tensor tensor_of(const Blocks& blocks, const BlockShape& shape) {
  return at::from_blob(const_cast<int64_t*>(blocks.data()),
                       {shape.heads, shape.blocks() - 2, shape.random_blocks}, torch::kLong)
      .clone();
}

/// (heads, blocks - 2, 5 + random): the blocks that each block but the first and the last sees. The
/// second one has no neighbour that is not the first: that place, and its like at the end, is
/// marked in `unused` (blocks - 2, 5 + random).
Tensor seen_blocks(const Tensor& random, const BlockShape& shape, Tensor& unused) {
  const auto rows = shape.blocks() - 2, last = shape.blocks() - 1;
  const auto options = random.options();
  const auto own = at::arange(1, last, options).unsqueeze(1);
  const auto every = [&](const Tensor& column) { return column.expand({rows, 1}); };
  const auto common = at::cat({every(at::full({1, 1}, 0, options)), own - 1, own, own + 1,
                               every(at::full({1, 1}, last, options))},
                              1);
  unused = at::zeros({rows, 5 + shape.random_blocks}, options.dtype(torch::kBool));
  unused[0][1].fill_(true);
  unused[rows - 1][3].fill_(true);
  return at::cat({common.unsqueeze(0).expand({shape.heads, rows, 5}), random}, 2);
}

/// (batch, heads, blocks, block_size · width) of all heads, then the blocks `flat` of them as
/// (batch, heads · rows, keys, width).
Tensor gathered(const Tensor& states, const Tensor& flat, int64_t rows, const BlockShape& shape) {
  const auto batch = states.size(0), width = states.size(3);
  return states.reshape({batch, shape.heads * shape.blocks(), shape.block_size * width})
      .index_select(1, flat)
      .view({batch, shape.heads * rows, -1, width});
}

/// Spreads the weights of the middle blocks over all keys. A block that is listed twice has the
/// same weights twice, and one that is not used has zeros.
Tensor spread(const Tensor& weights, const Tensor& seen, const BlockShape& shape) {
  const auto batch = weights.size(0), rows = shape.blocks() - 2, listed = seen.size(2);
  const std::vector<int64_t> sizes = {batch,  shape.heads,     rows, shape.block_size,
                                      listed, shape.block_size};
  const auto index = seen.view({1, shape.heads, rows, 1, listed, 1}).expand(sizes);
  auto all =
      at::zeros({batch, shape.heads, rows, shape.block_size, shape.blocks(), shape.block_size},
                weights.options());
  return all.scatter_reduce_(4, index, weights.reshape(sizes), "amax")
      .view({batch, shape.heads, rows * shape.block_size, shape.tokens});
}

}  // namespace

int64_t longest_full_attention(int64_t block_size, int64_t random_blocks) {
  return (5 + 2 * random_blocks) * block_size;
}

Tensor first_blocks(const BlockShape& shape) {
  return at::zeros({shape.heads, shape.blocks() - 2, shape.random_blocks}, torch::kLong);
}

Tensor random_blocks(const BlockShape& shape, int64_t layer) {
  numpy_random().seed(uint64_t(layer));
  const auto rows = shape.blocks() - 2, count = shape.random_blocks;
  Blocks all;
  if (shape.tokens == 1024 || shape.tokens == 3072 || shape.tokens == 4096) {
    for (int64_t head = 0; head < shape.heads; ++head)
      for (const auto block : rows_of_the_paper(shape)) all.push_back(block);
    return tensor_of(all, shape);
  }
  if (count == 0) return first_blocks(shape);
  all.resize(size_t(shape.heads * rows * count));
  for (int64_t block = 1; block <= rows + 1; ++block)  // the last block draws too
    for (int64_t head = 0; head < shape.heads; ++head) {
      const auto row = row_elsewhere(block, 2 * count + 5, count);
      if (block <= rows) std::ranges::copy(row, all.begin() + (head * rows + block - 1) * count);
    }
  return tensor_of(all, shape);
}

Tensor block_sparse_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                              const Tensor& random, const Tensor& mask, const BlockShape& shape,
                              Tensor* weights) {
  const auto batch = query.size(0), width = query.size(3), size = shape.block_size,
             rows = shape.blocks() - 2;
  // The first and the last block see everything.
  const auto ends =
      at::cat({query.narrow(2, 0, size), query.narrow(2, shape.tokens - size, size)}, 2);
  layers::AttentionMask everywhere;
  if (mask.defined())
    everywhere.mask = mask.view({batch, 1, 1, shape.tokens}).expand({-1, -1, 2 * size, -1});
  layers::AttentionOptions options;
  Tensor end_weights, middle_weights;
  if (weights != nullptr) options.weights = &end_weights;
  const auto of_ends = layers::attention(ends, key, value, everywhere, options);

  Tensor unused;
  const auto seen = seen_blocks(random, shape, unused);
  const auto listed = seen.size(2);
  const auto first = at::arange(shape.heads, seen.options()).view({-1, 1, 1}) * shape.blocks();
  const auto flat = (seen + first).reshape({-1}).to(query.device());
  auto allowed = unused.logical_not()
                     .to(query.device())
                     .view({1, 1, rows, listed, 1})
                     .expand({batch, shape.heads, rows, listed, size});
  if (mask.defined())
    allowed = allowed.logical_and(mask.view({batch, shape.blocks(), size})
                                      .index_select(1, seen.reshape({-1}).to(query.device()))
                                      .view({batch, shape.heads, rows, listed, size}));
  layers::AttentionMask middle;
  middle.mask =
      allowed.reshape({batch, shape.heads * rows, 1, listed * size}).expand({-1, -1, size, -1});
  if (weights != nullptr) options.weights = &middle_weights;
  const auto of_middle =
      layers::attention(
          query.narrow(2, size, rows * size).reshape({batch, shape.heads * rows, size, width}),
          gathered(key, flat, rows, shape), gathered(value, flat, rows, shape), middle, options)
          .view({batch, size, shape.heads, rows, width})
          .permute({0, 3, 1, 2, 4})
          .reshape({batch, rows * size, shape.heads * width});
  if (weights != nullptr)
    *weights = at::cat(
        {end_weights.narrow(2, 0, size), spread(middle_weights, seen.to(query.device()), shape),
         end_weights.narrow(2, size, size)},
        2);
  const auto output =
      at::cat({of_ends.narrow(1, 0, size), of_middle, of_ends.narrow(1, size, size)}, 1);
  return mask.defined() ? output * mask.unsqueeze(2).to(output.scalar_type()) : output;
}

}  // namespace gradus::bigbird
