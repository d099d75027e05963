#include <ATen/ops/bucketize.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randint_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <gradus/core/error.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/low_bit_adamw.h>

#include <cmath>

#include "kernels/blockwise.h"
#include "optim/saved_options.h"
#include "optim/stochastic_rounding.h"
#include "optim/working_precision.h"

namespace gradus {
namespace {

enum LowBitSlot : size_t { kMean, kSquare, kMeanCodes, kMeanScale, kSquareCodes, kSquareScale };

// torchao's values: those of bitsandbytes, but for squares in 4 bits sixteen even steps above zero.
torch::Tensor low_bit_values(int64_t bits, bool is_signed, torch::Device device) {
  const auto values = bits == 4 && !is_signed ? at::linspace(0, 1, 17, at::kFloat).slice(0, 1)
                                              : blockwise::dynamic_values(is_signed, bits - 1);
  return values.to(device);
}

// One of the two states of a parameter.
struct LowBitState {
  torch::Tensor plain, codes, scales, values;
  int64_t bits, block;

  torch::Tensor read(at::IntArrayRef sizes) const {
    if (plain.defined()) return plain.to(at::kFloat);
    const auto whole =
        bits == 8 ? codes
                  : at::stack({codes.bitwise_right_shift(4), codes.bitwise_and(15)}, -1).view({-1});
    return blockwise::dequantize(whole, scales, values, block).view(sizes);
  }

  void write(const torch::Tensor& numbers) const {
    if (plain.defined()) {
      plain.copy_(numbers);
      return;
    }
    const auto blocks = numbers.reshape({-1, block});
    scales.copy_(blocks.abs().amax(-1).clamp_min_(1e-12));
    const auto normed = (blocks / scales.unsqueeze(-1)).view({-1});
    // The last value that is not above, or the next one from the middle on.
    const int64_t last = values.numel() - 1;
    const auto below =
        at::bucketize(normed, values, /*out_int32=*/false, /*right=*/true).sub_(1).clamp_(0, last);
    const auto above = (below + 1).clamp_max_(last);
    const auto low = values.index_select(0, below), high = values.index_select(0, above);
    const auto found = at::where((normed - low) >= (high - low) * 0.5, above, below).to(at::kByte);
    codes.copy_(bits == 8 ? found.view(codes.sizes())
                          : found.slice(0, 0, std::nullopt, 2)
                                .bitwise_left_shift(4)
                                .bitwise_or(found.slice(0, 1, std::nullopt, 2)));
  }
};

}  // namespace

std::shared_ptr<Optimizer> LowBitAdamW::from_arguments(std::vector<ParamGroupInit> groups,
                                                       const OptimizerArguments& args,
                                                       const OptimArgs& extra) {
  LowBitAdamWOptions o{.lr = args.learning_rate,
                       .betas = {args.adam_beta1, args.adam_beta2},
                       .eps = args.adam_epsilon,
                       .weight_decay = args.weight_decay,
                       .bits = extra.optimizer() == "adamw_torch_4bit" ? 4 : 8};
  extra.read("block_size", o.block_size);
  extra.read("bf16_stochastic_round", o.bf16_stochastic_round);
  return std::make_shared<LowBitAdamW>(std::move(groups), o);
}

LowBitAdamW::LowBitAdamW(std::vector<torch::Tensor> params, LowBitAdamWOptions options)
    : LowBitAdamW(one_group(std::move(params)), options) {}

LowBitAdamW::LowBitAdamW(std::vector<ParamGroupInit> groups, LowBitAdamWOptions options)
    : Optimizer(std::move(groups), options.lr, options.weight_decay),
      options_(groups_.size(), options),
      bits_(options.bits),
      block_size_(options.block_size) {
  check_ranges({options.betas[0], options.betas[1]});
  if ((bits_ != 8 && bits_ != 4) || block_size_ < 2 || block_size_ % 2 != 0)
    throw Error("G-OPTIM-1", ErrorKind::usage,
                name() + ": states have 8 or 4 bits in blocks of an even size, received " +
                    std::to_string(bits_) + " bits and block_size " + std::to_string(block_size_));
}

void LowBitAdamW::update(Bucket& bucket, const StepContext&) {
  const auto& group = groups_[bucket.group];
  const auto& o = options_[bucket.group];
  // Python takes these from float32 tensors.
  const float lr = float(group.lr), decay = lr * float(group.weight_decay),
              correction1 = 1.0f - std::pow(float(o.betas[0]), float(bucket.step)),
              correction2 = std::sqrt(1.0f - std::pow(float(o.betas[1]), float(bucket.step)));
  const auto slot = [&](size_t k, size_t i) {
    return bucket.slots[k].empty() ? torch::Tensor() : bucket.slots[k][i];
  };
  const auto device = bucket.params.front().device();
  if (!mean_values_.defined() || mean_values_.device() != device) {
    mean_values_ = low_bit_values(bits_, /*is_signed=*/true, device);
    square_values_ = low_bit_values(bits_, /*is_signed=*/false, device);
  }
  for (size_t i = 0; i < bucket.params.size(); ++i) {
    auto param = bucket.params[i].to(at::kFloat);
    const auto grad = bucket.grads[i].to(at::kFloat);
    const LowBitState mean{slot(kMean, i), slot(kMeanCodes, i), slot(kMeanScale, i), mean_values_,
                           bits_,          block_size_},
        square{
            slot(kSquare, i), slot(kSquareCodes, i), slot(kSquareScale, i), square_values_, bits_,
            block_size_};
    param = param - param * decay;
    const auto first = mean.read(param.sizes()).lerp(grad, 1 - o.betas[0]);
    const auto second = square.read(param.sizes()).lerp(grad.square(), 1 - o.betas[1]);
    mean.write(first);
    square.write(second);
    const auto denominator = second.sqrt().div_(correction2).add_(o.eps);
    param.sub_((first / correction1).mul_(lr).div_(denominator));
    const bool by_chance =
        o.bf16_stochastic_round && bucket.params[i].scalar_type() == at::kBFloat16;
    bucket.params[i].copy_(
        by_chance ? rounded_by_chance(param, at::randint_like(param.view(at::kInt), 0, 1 << 16))
                  : param);
  }
}

std::vector<torch::Tensor> LowBitAdamW::make_slots(const torch::Tensor& param, size_t) const {
  std::vector<torch::Tensor> slots(6);
  if (param.numel() < 4096 || param.numel() % block_size_ != 0) {
    slots[kMean] = zeros_like_param(param);
    slots[kSquare] = zeros_like_param(param);
    return slots;
  }
  const auto codes = param.options().dtype(at::kByte).requires_grad(false);
  for (const size_t k : {kMeanCodes, kSquareCodes}) {
    slots[k] =
        bits_ == 8 ? torch::zeros(param.sizes(), codes) : torch::zeros({param.numel() / 2}, codes);
    slots[k + 1] = torch::zeros({param.numel() / block_size_}, codes.dtype(at::kFloat));
  }
  return slots;
}

// torchao keeps the rate in a tensor, and asks for one. Its own has float32, which would round
// ours.
StateTree LowBitAdamW::group_options(size_t group) const {
  const auto& o = options_[group];
  return StateTree::dict()
      .set("lr", torch::tensor(groups_[group].lr, at::kDouble))
      .set("betas", saved::tuple_of(o.betas))
      .set("eps", o.eps)
      .set("amsgrad", false)
      .set("block_size", block_size_)  // these two are not in torchao's files
      .set("bf16_stochastic_round", o.bf16_stochastic_round);
}

void LowBitAdamW::load_group_options(size_t group, const StateTree& saved) {
  saved::take(saved, "betas", options_[group].betas);
  saved::take(saved, "eps", options_[group].eps);
}

}  // namespace gradus
