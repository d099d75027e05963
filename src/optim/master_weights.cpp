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

MasterWeights::MasterWeights(torch::nn::Module& module, torch::Device device)
    : device_(device), weights_(halvable_parameters(module)) {
  const torch::NoGradGuard no_grad;
  for (auto& weight : weights_) {
    const bool waits = device_.is_cuda() && !weight.requires_grad();
    // A handle of its own on the same storage, or on the host; rounded there, so that the device
    // never holds both.
    masters_.push_back((waits ? weight.detach().cpu() : weight.detach()).contiguous());
    halves_.push_back(masters_.back().to(torch::kBFloat16).to(waits ? device_ : weight.device()));
    if (waits) weight.set_data(halves_.back());
  }
  hide(/*refresh=*/false);
}

MasterWeights::~MasterWeights() {
  if (optimizer_ != nullptr) optimizer_->release_masters();
  show();
  for (auto& weight : weights_)
    if (device_.is_cuda() && weight.is_cpu()) weight.set_data(weight.detach().to(device_));
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
    std::vector<torch::Tensor> from, to;
    for (size_t i = 0; i < weights_.size(); ++i)
      if (masters_[i].device() == halves_[i].device()) {
        from.push_back(masters_[i]);
        to.push_back(halves_[i]);
      } else {
        halves_[i].copy_(masters_[i].to(torch::kBFloat16));
      }
    at::_foreach_copy_(to, from);
  }
  for (size_t i = 0; i < weights_.size(); ++i) {
    weights_[i].mutable_grad().reset();
    weights_[i].set_data(halves_[i]);
  }
}

}  // namespace gradus
