#include <ATen/ops/_foreach_copy.h>
#include <gradus/optim/master_weights.h>
#include <gradus/optim/optimizer.h>
#include <torch/nn/modules/batchnorm.h>

#include <unordered_set>

namespace gradus {
namespace {

bool is_batch_norm(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module) != nullptr;
}

}  // namespace

std::vector<torch::Tensor> halvable_parameters(torch::nn::Module& module) {
  std::vector<torch::Tensor> found;
  std::unordered_set<const void*> seen;  // tied parameters come more than once
  for (const auto& part : module.modules(/*include_self=*/true)) {
    if (is_batch_norm(*part)) continue;
    for (const auto& weight : part->parameters(/*recurse=*/false)) {
      if (weight.scalar_type() != torch::kFloat ||
          !seen.insert(weight.unsafeGetTensorImpl()).second)
        continue;
      found.push_back(weight);
    }
  }
  return found;
}

MasterWeights::MasterWeights(torch::nn::Module& module) : weights_(halvable_parameters(module)) {
  const torch::NoGradGuard no_grad;
  for (const auto& weight : weights_) {
    masters_.push_back(weight.detach().contiguous());  // a handle of its own on the same storage
    halves_.push_back(masters_.back().to(torch::kBFloat16));
  }
  hide(/*refresh=*/false);
}

MasterWeights::~MasterWeights() {
  if (optimizer_ != nullptr) optimizer_->release_masters();
  show();
}

void MasterWeights::attach(Optimizer& optimizer) {
  optimizer.train_masters(weights_, masters_);
  optimizer_ = &optimizer;
}

void MasterWeights::show() {
  for (size_t i = 0; i < weights_.size(); ++i) {
    weights_[i].mutable_grad().reset();  // of the other type
    weights_[i].set_data(masters_[i]);
  }
}

void MasterWeights::hide(bool refresh) {
  if (refresh) {
    const torch::NoGradGuard no_grad;
    at::_foreach_copy_(halves_, masters_);
  }
  for (size_t i = 0; i < weights_.size(); ++i) {
    weights_[i].mutable_grad().reset();
    weights_[i].set_data(halves_[i]);
  }
}

}  // namespace gradus
