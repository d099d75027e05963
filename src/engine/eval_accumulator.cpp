#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/engine/eval_accumulator.h>

namespace gradus {
namespace {

torch::Tensor at_least_1d(const torch::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
}

torch::Tensor with_width(const torch::Tensor& tensor, int64_t width, int64_t padding) {
  if (tensor.dim() < 2 || tensor.size(1) == width) return tensor;
  auto sizes = tensor.sizes().vec();
  sizes[1] = width;
  auto wide = torch::full(sizes, padding, tensor.options());
  wide.slice(1, 0, tensor.size(1)).copy_(tensor);
  return wide;
}

// As an array of numpy would hold it.
torch::Tensor on_cpu(const torch::Tensor& tensor) {
  const auto copy = tensor.to(torch::kCPU);
  return copy.scalar_type() == torch::kBFloat16 ? copy.to(torch::kFloat) : copy;
}

}  // namespace

torch::Tensor pad_and_concatenate(const torch::Tensor& a, const torch::Tensor& b, int64_t padding) {
  const auto left = at_least_1d(a), right = at_least_1d(b);
  if (left.dim() < 2) return torch::cat({left, right});
  const int64_t width = std::max(left.size(1), right.size(1));
  return torch::cat({with_width(left, width, padding), with_width(right, width, padding)});
}

void EvalAccumulator::add(TensorList parts) { batches_.push_back(std::move(parts)); }

void EvalAccumulator::to_cpu() {
  for (auto& batch : batches_)
    for (auto& part : batch) part = part.to(torch::kCPU);
}

TensorList EvalAccumulator::join() const {
  TensorList joined;
  if (batches_.empty()) return joined;
  for (size_t i = 0; i < batches_.size(); ++i)
    if (batches_[i].size() != batches_.front().size())
      throw Error("G-TRAIN-17", ErrorKind::training,
                  fmt::format("the batches of the evaluation cannot be joined: batch {} gave {} "
                              "tensors, the first one {}",
                              i, batches_[i].size(), batches_.front().size()),
                  "Return the same outputs for every batch, or name those that are not predictions "
                  "in ignore_keys.");
  for (size_t part = 0; part < batches_.front().size(); ++part) {
    TensorList pieces;
    int64_t width = 0;
    for (const auto& batch : batches_) {
      auto piece = on_cpu(at_least_1d(batch.at(part)));
      if (piece.dim() >= 2) width = std::max(width, piece.size(1));
      pieces.push_back(std::move(piece));
    }
    for (auto& piece : pieces) piece = with_width(piece, width, -100);
    joined.push_back(torch::cat(pieces));
  }
  return joined;
}

std::vector<TensorList> EvalAccumulator::batches() const {
  auto copies = batches_;
  for (auto& batch : copies)
    for (auto& part : batch) part = on_cpu(part);
  return copies;
}

}  // namespace gradus
