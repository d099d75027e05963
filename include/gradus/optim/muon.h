#pragma once

#include <gradus/optim/optimizer.h>

#include <array>

namespace gradus {

/// Settings of `Muon`, with torch's names and defaults.
struct MuonOptions {
  /// Learning rate of groups that set none.
  double lr = 1e-3;
  /// For groups that set none.
  double weight_decay = 0.1;
  /// How much of the running mean of gradients is kept.
  double momentum = 0.95;
  /// Nesterov's form of momentum.
  bool nesterov = true;
  /// Coefficients of the Newton-Schulz iteration.
  std::array<double, 3> ns_coefficients = {3.4445, -4.775, 2.0315};
  /// Added to the norm that the iteration divides by.
  double eps = 1e-7;
  /// Rounds of the Newton-Schulz iteration.
  int64_t ns_steps = 5;
  /// How the rate follows a matrix's shape: "original", "match_rms_adamw" or "spectral_unclamped".
  std::optional<std::string> adjust_lr_fn = std::nullopt;
  // AdamW for everything that is no hidden matrix.
  std::optional<double> adamw_lr = std::nullopt;  ///< default: `lr`
  /// Betas of the AdamW that trains what is no matrix.
  std::array<double, 2> adamw_betas = {0.9, 0.999};
  /// Epsilon of that AdamW.
  double adamw_eps = 1e-8;
};

/// Muon: momentum made orthogonal by Newton-Schulz steps, `torch.optim.Muon` for matrices.
///
/// Each given group is split in two: two-dimensional parameters, and the rest (biases, norms,
/// convolutions), which AdamW updates. Embeddings and output heads belong to the rest too; they are
/// told by name ("embed", "wte", "wpe", "lm_head") where names are given. Empty halves are dropped.
/// Thread-safety: as `Optimizer`.
class Muon : public Optimizer {
 public:
  /// All parameters in one group.
  explicit Muon(std::vector<torch::Tensor> params, MuonOptions options = {});
  /// Parameters in groups, which may have settings of their own.
  explicit Muon(std::vector<ParamGroupInit> groups, MuonOptions options = {});

  /// Makes it from training arguments, as `Trainer` does for its name in `--optim`. `extra` holds
  /// the settings of `--optim_args`. Throws `Error` G-OPTIM-1 or G-OPTIM-7 for a value that cannot
  /// be used. The table of src/optim/factory.cpp has a row for it.
  static std::shared_ptr<Optimizer> from_arguments(std::vector<ParamGroupInit> groups,
                                                   const OptimizerArguments& args,
                                                   const OptimArgs& extra);

  std::string name() const override { return "muon"; }
  /// Whether `group` is one of matrices.
  bool is_muon_group(size_t group) const { return uses_muon_.at(group); }

 protected:
  // How the base class updates, saves and loads it: see Optimizer.
  void update(Bucket& bucket, const StepContext& context) override;
  std::vector<std::string> slot_names() const override {
    return {"momentum_buffer", "exp_avg", "exp_avg_sq"};
  }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  int64_t bucket_step(const Bucket& bucket) const override;
  StateTree group_options(size_t group) const override;
  void load_group_options(size_t group, const StateTree& saved) override;
  StateTree param_entry(const ParamState& state, size_t group) const override;

 private:
  struct Split {
    std::vector<ParamGroupInit> groups;
    std::vector<bool> uses_muon;
  };
  static Split split(std::vector<ParamGroupInit> groups, const MuonOptions& options);
  Muon(Split split, MuonOptions options);
  void update_matrices(Bucket& bucket, const MuonOptions& options);

  std::vector<bool> uses_muon_;       // one per group
  std::vector<MuonOptions> options_;  // one per group
};

}  // namespace gradus
