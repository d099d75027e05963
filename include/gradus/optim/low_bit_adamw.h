#pragma once

#include <gradus/optim/optimizer.h>

#include <array>

namespace gradus {

/// Settings of `LowBitAdamW`, with torchao's names and transformers' defaults.
struct LowBitAdamWOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-3;
  /// How much of the running means of gradients and of their squares is kept.
  std::array<double, 2> betas = {0.9, 0.999};
  /// Added to the denominator.
  double eps = 1e-8;
  double weight_decay = 1e-2;          ///< decoupled; for groups that set none
  int64_t bits = 8;                    ///< of a state: 8 or 4
  int64_t block_size = 256;            ///< elements that share a scale
  bool bf16_stochastic_round = false;  ///< round bfloat16 parameters up or down by chance
};

/// torchao's AdamW with states of 8 or 4 bits: `adamw_torch_8bit`, `adamw_torch_4bit`.
///
/// Tensors of fewer than 4096 elements, and those that are no whole number of blocks, keep states
/// of the parameter's type. Thread-safety: as `Optimizer`.
class LowBitAdamW : public Optimizer {
 public:
  /// All parameters in one group.
  explicit LowBitAdamW(std::vector<torch::Tensor> params, LowBitAdamWOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit LowBitAdamW(std::vector<ParamGroupInit> groups, LowBitAdamWOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its names in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override { return bits_ == 8 ? "adamw_torch_8bit" : "adamw_torch_4bit"; }

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
  void update(Bucket& bucket, const StepContext& context) override;
  /// A state is a tensor of numbers, or codes and scales.
  std::vector<std::string> slot_names() const override {
    return {"exp_avg",       "exp_avg_sq",       "exp_avg.codes",
            "exp_avg.scale", "exp_avg_sq.codes", "exp_avg_sq.scale"};
  }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;

 private:
  std::vector<LowBitAdamWOptions> options_;  // one per group
  int64_t bits_, block_size_;
  torch::Tensor mean_values_, square_values_;  // what codes stand for, where the parameters are
};

}  // namespace gradus
