#include <ATen/ops/stack.h>
#include <gradus/core/error.h>
#include <gradus/optim/bnb_optimizer.h>

#include <algorithm>

#include "kernels/blockwise.h"
#include "optim/bitsandbytes_layout.h"
#include "optim/working_precision.h"

namespace gradus {
namespace {

bool name_has(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

// A state of 8 bits, alone or two of them stacked, each with scales of its own.
struct QuantisedState {
  torch::Tensor codes, scales, values;

  torch::Tensor read() const {
    if (scales.dim() == 1) return blockwise::dequantize(codes, scales, values);
    return at::stack({blockwise::dequantize(codes[0], scales[0], values),
                      blockwise::dequantize(codes[1], scales[1], values)});
  }

  void write(const torch::Tensor& numbers) const {
    if (scales.dim() == 1) return blockwise::quantize(numbers, values, codes, scales);
    for (int64_t k = 0; k < 2; ++k) blockwise::quantize(numbers[k], values, codes[k], scales[k]);
  }
};

// Shared by all states on the CPU, and never written to.
const torch::Tensor& shared_values(bool is_signed) {
  static const auto with_sign = blockwise::dynamic_values(true),
                    without = blockwise::dynamic_values(false);
  return is_signed ? with_sign : without;
}

std::string name_of_states(const BnbStates& states, const std::string& stem) {
  return (states.paged ? "paged_" : "") + stem + "_" + std::to_string(states.bits) + "bit";
}

}  // namespace

BnbStates BnbStates::named(const std::string& optimizer) {
  return {.bits = name_has(optimizer, "8bit") ? 8 : 32,
          .paged = name_has(optimizer, "paged"),
          .name = optimizer};
}

BnbOptimizer::BnbOptimizer(std::vector<ParamGroupInit> groups, double lr, double weight_decay,
                           BnbStates states, const std::string& stem)
    : Optimizer(std::move(groups), lr, weight_decay), states_(std::move(states)) {
  if (states_.name.empty()) states_.name = name_of_states(states_, stem);
  if (states_.bits != 8 && states_.bits != 32)
    throw Error("G-OPTIM-1", ErrorKind::usage,
                stem + ": states have 8 or 32 bits, received " + std::to_string(states_.bits));
}

void BnbOptimizer::update(Bucket& bucket, const StepContext&) {
  const auto names = slot_names();
  const auto slot = [&](const char* name, size_t i) {
    const auto place = size_t(std::find(names.begin(), names.end(), name) - names.begin());
    return place == names.size() || bucket.slots[place].empty() ? torch::Tensor()
                                                                : bucket.slots[place][i];
  };
  const auto params = in_working_precision(bucket.params);
  const auto grads = in_working_precision(bucket.grads);
  Values whole;
  for (size_t i = 0; i < params.size(); ++i) {
    const auto first = slot("state1", i), second = slot("state2", i);
    if (first.scalar_type() != at::kByte) {
      whole.params.push_back(params[i]);
      whole.grads.push_back(grads[i]);
      whole.state1.push_back(first);
      if (second.defined()) whole.state2.push_back(second);
      continue;
    }
    const QuantisedState one{first, slot("absmax1", i), slot("qmap1", i)},
        two{second, slot("absmax2", i), slot("qmap2", i)};
    Values values{{params[i]}, {grads[i]}, {one.read()}, {}, true};
    if (second.defined()) values.state2.push_back(two.read());
    apply(values, bucket.group, bucket.step);
    one.write(values.state1[0]);
    if (second.defined()) two.write(values.state2[0]);
  }
  if (!whole.params.empty()) apply(whole, bucket.group, bucket.step);
  write_back(params, bucket.params);
}

bool BnbOptimizer::quantises(const torch::Tensor& param, size_t group) const {
  if (states_.bits != 8 || param.numel() < states_.min_8bit_size) return false;
  const auto& [params, roles] = std::tie(groups_[group].params, groups_[group].roles);
  for (size_t i = 0; i < roles.size(); ++i)
    if (params[i].is_same(param)) return roles[i] != ParamRole::embedding;
  return true;
}

std::vector<torch::Tensor> BnbOptimizer::slots_in(const torch::Tensor& param,
                                                  bool is_quantised) const {
  const auto type = is_quantised ? at::kByte : working_type(param.scalar_type());
  const auto plain = param.options().requires_grad(false);
  const int64_t blocks = (param.numel() + blockwise::kBlock - 1) / blockwise::kBlock;
  const auto zeros_for = [&](const std::string& name) {
    const bool is_first = name.ends_with('1');
    if (!is_first && !name.ends_with('2')) return torch::Tensor();
    if (name.starts_with("qmap")) return shared_values(/*is_signed=*/is_first).to(param.device());
    const bool is_state = name.starts_with("state"), is_stack = is_first && stacked() > 0;
    if (is_state && !is_quantised && !is_stack) return zeros_like_param(param, type);
    auto sizes = is_state ? param.sizes().vec() : std::vector<int64_t>{blocks};
    if (is_stack) sizes.insert(sizes.begin(), stacked());
    return torch::zeros(sizes, plain.dtype(is_state ? type : at::kFloat));
  };
  std::vector<torch::Tensor> slots;
  for (const auto& name : slot_names())
    slots.push_back(is_quantised || name.starts_with("state") ? zeros_for(name) : torch::Tensor());
  return slots;
}

std::vector<torch::Tensor> BnbOptimizer::make_slots(const torch::Tensor& param,
                                                    size_t group) const {
  return slots_in(param, quantises(param, group));
}

StateTree BnbOptimizer::param_entry(const ParamState& state, size_t group) const {
  return bitsandbytes::nested(Optimizer::param_entry(state, group));
}

Optimizer::ParamState BnbOptimizer::read_param_entry(const StateTree& entry,
                                                     const torch::Tensor& param, size_t,
                                                     const std::string& what) const {
  const auto saved = bitsandbytes::flat(entry);
  const bool is_quantised = saved.at("state1").as_tensor().scalar_type() == at::kByte;
  ParamState state{true, saved.at("step").as_int(), slots_in(param, is_quantised)};
  const auto names = slot_names();
  for (size_t k = 0; k < names.size(); ++k) {
    if (names[k].starts_with("qmap") || !state.slots[k].defined()) continue;
    copy_slot(state.slots[k], saved.at(names[k]).as_tensor(), what + ", '" + names[k] + "'");
  }
  return state;
}

}  // namespace gradus
