#pragma once

#include <gradus/optim/optimizer.h>

namespace gradus {

/// How a bitsandbytes optimizer keeps its states.
struct BnbStates {
  /// 32: float32 states. 8: codes of eight bits with one scale for every 256 of them, but float32
  /// for tensors below `min_8bit_size` and for embeddings.
  int64_t bits = 32;
  /// In Python, states that move to host memory when a GPU is full. Here they stay where the
  /// parameters are; the numbers are the same.
  bool paged = false;
  /// What `--optim` calls the optimizer; made from the rest where it is empty.
  std::string name = {};
  /// Tensors with fewer elements keep float32 states.
  int64_t min_8bit_size = 4096;

  /// What a name such as "paged_lion_8bit" asks for.
  static BnbStates named(const std::string& optimizer);
};

/// The base of bitsandbytes' optimizers: states in 32 or 8 bits, and its file layout.
///
/// A state of 8 bits is made float32 for the time of a parameter's update and quantised again after
/// it, one parameter at a time. Thread-safety: as `Optimizer`.
class BnbOptimizer : public Optimizer {
 public:
  std::string name() const override { return states_.name; }
  /// With states of 8 bits the elements of a block share a scale.
  bool is_elementwise() const override { return states_.bits == 32; }

 protected:
  /// What one update works on, in float32.
  struct Values {
    std::vector<torch::Tensor> params;  ///< brought up to date by `apply`
    std::vector<torch::Tensor> grads;   ///< not to be changed
    std::vector<torch::Tensor> state1;  ///< brought up to date by `apply`
    std::vector<torch::Tensor> state2;  ///< the same; empty where there is none
    /// Whether the states are kept in 8 bits: bitsandbytes rounds its formulas differently then.
    bool is_quantised = false;
  };

  /// `stem` is the name without bits: "lion".
  BnbOptimizer(std::vector<ParamGroupInit> groups, double lr, double weight_decay, BnbStates states,
               const std::string& stem);

  /// Updates parameters and states that are at `step`.
  virtual void apply(const Values& values, size_t group, int64_t step) = 0;

  // How the base class updates, saves and loads it: see Optimizer.
  void update(Bucket& bucket, const StepContext& context) override;
  /// The order of bitsandbytes' files; "state2" is missing where there is one state.
  std::vector<std::string> slot_names() const override {
    return {"state1", "qmap1", "state2", "qmap2", "absmax1", "absmax2"};
  }
  StepForm step_form() const override { return StepForm::integer; }
  std::vector<torch::Tensor> make_slots(const torch::Tensor& param, size_t group) const override;
  StateTree param_entry(const ParamState& state, size_t group) const override;
  ParamState read_param_entry(const StateTree& entry, const torch::Tensor& param, size_t group,
                              const std::string& what) const override;
  /// A state has what its file had, whatever the settings ask of new ones.
  void complete_slots(ParamState&, const torch::Tensor&, size_t) const override {}
  /// How many tensors of the parameter's shape the first state stacks; none for one.
  virtual int64_t stacked() const { return 0; }

 private:
  /// The slots of a parameter with states of 8 bits or of 32.
  std::vector<torch::Tensor> slots_in(const torch::Tensor& param, bool is_quantised) const;
  /// Whether a new state of the parameter has 8 bits.
  bool quantises(const torch::Tensor& param, size_t group) const;

  BnbStates states_;
};

}  // namespace gradus
