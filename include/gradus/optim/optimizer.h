#pragma once

#include <gradus/core/state_tree.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

class OptimArgs;
struct OptimizerArguments;

/// What a parameter is in its module, where an optimizer treats some kinds differently.
enum class ParamRole { other, linear_weight, embedding };

/// What an optimizer is built from: parameters that share settings.
/// What is not set here comes from the optimizer's own options.
struct ParamGroupInit {
  /// The tensors to train; they share storage with the model's.
  std::vector<torch::Tensor> params = {};
  std::vector<std::string> names =
      {};  ///< one per parameter, or none; only for messages and rules by name
  std::vector<ParamRole> roles = {};  ///< one per parameter, or none
  /// The group's learning rate.
  std::optional<double> lr = std::nullopt;
  /// The group's weight decay.
  std::optional<double> weight_decay = std::nullopt;
};

/// One group of a living optimizer. `lr` and `weight_decay` may be changed between steps; schedules
/// do so.
struct ParamGroup {
  /// The tensors that are trained.
  std::vector<torch::Tensor> params;
  /// One per parameter, or none.
  std::vector<std::string> names;
  /// One per parameter, or none.
  std::vector<ParamRole> roles;
  /// The learning rate of the next step.
  double lr = 0.0;
  std::optional<double> initial_lr;  ///< set by the first schedule; what it multiplies
  /// The weight decay of the next step.
  double weight_decay = 0.0;
};

/// What a step may take from the device instead of the host. One-element float32 tensors on the
/// parameters' device, but for `lr`.
struct StepContext {
  std::optional<torch::Tensor> grad_scale =
      std::nullopt;  ///< gradients are still multiplied by this; only where `takes_grad_scale()`
  std::optional<torch::Tensor> found_inf =
      std::nullopt;  ///< non-zero: leave parameters and state as they are
  std::optional<torch::Tensor> clip_coef =
      std::nullopt;  ///< gradients are to be multiplied by this, as clipping asks
  std::optional<torch::Tensor> lr =
      std::nullopt;  ///< learning rates, one per group, in place of the groups' own; only where
                     ///< `takes_device_lr()`
};

/// The base of all optimizers: parameter groups, per-parameter state, and Python's file layout of
/// both.
///
/// Parameters are held as handles that share storage with the model. State is made when a parameter
/// first has a gradient, as in torch. A step works on buckets: parameters of one group that share
/// device, dtype and step count, with their lists kept between steps, so that a step costs one
/// kernel call per bucket and no host-device sync (a `found_inf` on a GPU is read back only by
/// optimizers where `skips_on_device()` is false). Thread-safety: none; one thread at a time.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient.
  /// Throws `Error` G-OPTIM-2 for sparse gradients, naming the parameter.
  virtual void step(const StepContext& context = {});

  /// Drops the gradients, or fills them with zeros.
  virtual void zero_grad(bool set_to_none = true);

  /// The parameter groups, in the order they were given.
  std::vector<ParamGroup>& param_groups() { return groups_; }
  /// The parameter groups, in the order they were given.
  const std::vector<ParamGroup>& param_groups() const { return groups_; }

  /// The learning rate the optimizer was made with, before any schedule (`optimizer.defaults["lr"]`
  /// in Python).
  double default_lr() const { return default_lr_; }

  /// `{"state": {index: {...}}, "param_groups": [{...}]}` with the keys the Python optimizer of
  /// this name writes. Tensors are shared with the optimizer, except step counts: copy them before
  /// the next step.
  virtual StateTree state_dict() const;

  /// Takes over a state of this layout, written here or by Python, including the groups' settings.
  /// Tensors are copied and moved to the parameters' device.
  /// Throws G-OPTIM-3 when groups, sizes or shapes differ, before anything is changed.
  virtual void load_state_dict(const StateTree& state);

  /// Switch the parameters between the values gradients are taken at and those to evaluate and
  /// save. Only schedule-free optimizers keep two; they refuse to step in eval mode. New optimizers
  /// are in train mode.
  virtual void train() {}
  /// The counterpart of `train()`.
  virtual void eval() {}

  /// What `--optim` calls it: "adamw_torch_fused".
  virtual std::string name() const = 0;

  /// Whether `StepContext::grad_scale` is applied inside the step.
  virtual bool takes_grad_scale() const { return false; }
  /// Whether `found_inf` skips the step without the host reading it.
  virtual bool skips_on_device() const { return false; }
  /// Whether `StepContext::lr` is used.
  virtual bool takes_device_lr() const { return false; }
  /// Whether a step recorded now as a CUDA graph may stand for later ones: all that changes from
  /// step to step is on the device. It holds as long as `arrangement()` and the groups' weight
  /// decay stay as they are.
  virtual bool is_recordable() const { return false; }
  /// Changes whenever the lists that a step works on are rebuilt.
  int64_t arrangement() const { return arrangement_; }

  /// Master weights: from now on `masters[i]` (float32) is trained in place of the parameter
  /// `weights[i]` (bfloat16), which keeps the gradients and receives the new values after every
  /// step. The groups hold the masters; state is made and saved for them. Only where
  /// `can_train_masters()`; a weight that is in no group is ignored.
  void train_masters(const std::vector<torch::Tensor>& weights,
                     const std::vector<torch::Tensor>& masters);
  /// Undoes it: the groups hold the weights again.
  void release_masters();
  /// Whether `train_masters` may be called.
  virtual bool can_train_masters() const { return true; }

  /// Whether a step treats every element of a parameter alone, so that a part of it can be trained
  /// without the rest. An optimizer of your own that does so overrides it.
  virtual bool is_elementwise() const { return false; }
  /// Sharding: from now on `parts[i]`, a vector that carries a gradient of its own, is trained in
  /// place of `parameters[i]`. States begin anew, or where `release_parts` left them when the parts
  /// have the same sizes. A parameter that is in no group is ignored.
  void train_parts(const std::vector<torch::Tensor>& parameters,
                   const std::vector<torch::Tensor>& parts);
  /// Undoes it: the groups hold the parameters again. The states of the parts are kept for the next
  /// `train_parts`; those of the parameters begin anew.
  void release_parts();

  /// Whether `max_grad_norm` limits its gradients. Python's LOMO and layer-wise optimizers step
  /// inside the backward pass, where nobody can.
  virtual bool takes_clipping() const { return true; }

  /// The tensors that carry gradients: the groups' parameters, or the weights they are masters of.
  std::vector<torch::Tensor> gradient_holders() const;

 protected:
  /// State of one parameter. Slots are in the order of `slot_names()`; an undefined tensor is a
  /// slot not in use.
  struct ParamState {
    /// Whether the parameter has had a gradient.
    bool exists = false;
    /// Steps that the parameter has taken.
    int64_t step = 0;
    /// The state tensors.
    std::vector<torch::Tensor> slots;
  };

  /// Parameters updated by one kernel call.
  struct Bucket {
    /// The group that the parameters belong to.
    size_t group = 0;
    std::vector<size_t> index;  ///< positions in the group
    /// The parameters, in the order of `index`.
    std::vector<torch::Tensor> params;
    std::vector<torch::Tensor>
        weights;  ///< half-precision copies of `params` to bring up to date; empty without masters
    std::vector<torch::Tensor>
        grads;  ///< refreshed every step; in float32 unless `updates_weights()`
    std::vector<std::vector<torch::Tensor>>
        slots;                  ///< [slot][parameter]; empty for a slot not in use
    int64_t step = 0;           ///< steps taken; in `update` including the current one
    torch::Tensor step_tensor;  ///< the same for kernels that read it; see `advance_step_tensor`
    std::vector<torch::Tensor> steps;  ///< `step_tensor` once per parameter
  };

  /// How a step count stands in the state of a parameter.
  enum class StepForm { none, integer, tensor };

  /// `lr` and `weight_decay` are for groups that set none.
  Optimizer(std::vector<ParamGroupInit> groups, double lr, double weight_decay);
  /// One group of all the parameters, with no settings of its own.
  static std::vector<ParamGroupInit> one_group(std::vector<torch::Tensor> params);
  /// Throws G-OPTIM-1 unless lr and weight decay are not negative and `betas` lie in [0, 1).
  void check_ranges(const std::vector<double>& betas = {}) const;

  /// Whether `update` reads half-precision gradients of masters, applies `clip_coef` and writes
  /// `weights` itself.
  virtual bool updates_weights() const { return false; }

  /// Updates one bucket; gradients are recorded nowhere. `context.found_inf` is set only where
  /// `skips_on_device()`.
  virtual void update(Bucket& bucket, const StepContext& context) = 0;
  /// Called once before the buckets of a step.
  virtual void begin_step() {}

  /// Names of the state tensors in Python's order.
  virtual std::vector<std::string> slot_names() const = 0;
  /// How this optimizer's file holds step counts.
  virtual StepForm step_form() const { return StepForm::tensor; }
  /// Makes the slots of a parameter at its first gradient.
  virtual std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const = 0;
  /// Adds the slots that settings just read from a file ask for and the file does not have.
  virtual void complete_slots(ParamState& state, const torch::Tensor& param, size_t group) const;
  /// Whether the lists for the next step exist. They are kept as long as the same parameters have
  /// gradients.
  bool is_arranged() const { return !stale_ && !buckets_.empty(); }
  /// The step count of a bucket; reads the device where the truth is there.
  virtual int64_t bucket_step(const Bucket& bucket) const { return bucket.step; }
  /// Brings `bucket.step_tensor` to `bucket.step`: a plain store on the CPU, a counter of its own
  /// on a GPU, where a step that was skipped or replayed from a graph is unknown to the host.
  static void advance_step_tensor(Bucket& bucket);
  /// `bucket_step` for optimizers that use `advance_step_tensor`.
  static int64_t read_step_tensor(const Bucket& bucket);

  /// The options of a group in Python's names and order, without weight_decay, lr, initial_lr and
  /// params.
  virtual StateTree group_options(size_t group) const = 0;
  /// Takes over what `group_options` gave.
  virtual void load_group_options(size_t group, const StateTree& saved) = 0;
  /// One parameter's entry under "state"; an empty dict is left out of the file.
  virtual StateTree param_entry(const ParamState& state, size_t group) const;
  /// The state in an entry that `param_entry`, or Python, wrote; `what` names it in errors.
  virtual ParamState read_param_entry(const StateTree& entry, const torch::Tensor& param,
                                      size_t group, const std::string& what) const;

  /// "parameter 3 (linear.weight)", for messages.
  std::string parameter_text(size_t group, size_t index) const;
  /// Copies a saved tensor into `slot`. Throws G-OPTIM-3 when the shapes differ.
  static void copy_slot(torch::Tensor& slot, const torch::Tensor& saved, const std::string& what);
  /// State of a parameter right now, buckets included.
  const std::vector<std::vector<ParamState>>& current_states() const;

  /// The groups that `param_groups()` gives.
  std::vector<ParamGroup> groups_;
  /// What `default_lr()` gives.
  double default_lr_;

 private:
  const torch::Tensor& holder(size_t group, size_t index) const;
  torch::Tensor grad_for(const torch::Tensor& holder) const;
  bool collect_grads();
  void rebuild_buckets();
  void store_bucket_steps() const;
  template <class F>
  void replace_parameters(const std::vector<std::pair<torch::Tensor, torch::Tensor>>& others,
                          const F& state_of);

  mutable std::vector<std::vector<ParamState>>
      states_;  // [group][parameter]; step counts of buckets are stored when asked for
  std::vector<std::vector<torch::Tensor>>
      weights_;  // [group][parameter] of masters; undefined where there is none, empty without
  std::vector<std::pair<torch::Tensor, torch::Tensor>> parts_;  // parameter, part
  std::vector<std::pair<int64_t, ParamState>>
      kept_;  // sizes and states of parts that were released
  std::vector<Bucket> buckets_;
  std::vector<std::pair<size_t, size_t>> inactive_;  // parameters without gradient at the last step
  bool stale_ = true;
  int64_t arrangement_ = 0;
};

}  // namespace gradus
