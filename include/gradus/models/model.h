#pragma once

#include <gradus/config/gradient_checkpointing.h>
#include <gradus/data/batch.h>
#include <gradus/models/attention_shape.h>
#include <gradus/models/model_output.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

struct TokenizerLike;

/// Asks a causal language model for scores of labels, so that it need not make logits of the whole
/// batch.
///
/// Where the model has a kernel for it (`kernels::linear_token_scores`), its output then has no
/// logits but `token_log_probs` and `token_entropy` (rows, tokens) and `token_facts` (rows, tokens,
/// 3): mean logit, whether the label is the likeliest token, log Σ p². All are float32; column t
/// is about label t + 1. Elsewhere it answers with logits.
struct TokenScoring {
  torch::Tensor labels;           ///< (rows, tokens), -100 where there is none.
  double temperature = 1.0;       ///< Logits are divided by it.
  torch::Tensor loss_scale = {};  ///< Defined: `loss` is the sum of -log p times it.
  bool weights_by_prob = false;   ///< Each summand of the loss is multiplied by p.
};

/// What a caller asks of a forward pass.
struct ForwardOptions {
  /// Number of labels in all batches of a gradient accumulation window. When set, the sum of the
  /// loss is divided by it instead of by the labels of this batch.
  std::optional<torch::Tensor> num_items_in_batch;
  bool output_hidden_states = false;  ///< Whether to return the output of every block.
  bool output_attentions = false;     ///< Whether to return the attention weights.
  /// Whether the caller reads the logits. When false, a model that computes its own loss may skip
  /// them.
  bool need_logits = true;
  /// Scores of labels in place of logits.
  std::optional<TokenScoring> token_scoring = std::nullopt;
};

/// Names and tensors of a model, in the order of its modules.
using StateDict = torch::OrderedDict<std::string, torch::Tensor>;

/// The weights that the folder of a saved model holds.
struct SavedWeights {
  std::string stem = "model";  ///< the files' names begin with it: model.safetensors
  StateDict tensors;           ///< they share storage with the model
};

/// What the trainers train: a torch module that takes a `Batch` and returns a `ModelOutput`.
///
/// Only `forward` must be overridden. The other methods tell a trainer more about the model, and
/// their defaults suit a plain module. `make_model` builds a Model from a module and a function.
/// Thread-safety: as a torch module.
class Model : public torch::nn::Module {
 public:
  /// Runs the model. The output holds "loss" when the batch has labels and the model computes a
  /// loss.
  virtual ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) = 0;

  /// The columns that `forward` reads, for `remove_unused_columns`. Empty keeps every column.
  virtual std::vector<std::string> input_names() const { return {}; }
  /// The columns that are labels.
  virtual std::vector<std::string> label_names() const { return {"labels"}; }
  /// Whether `forward` divides its loss by `num_items_in_batch` when it is set.
  virtual bool accepts_loss_kwargs() const { return false; }
  /// What the model keeps from one forward pass to the next beside parameters and buffers. It goes
  /// into checkpoints. Null when there is nothing.
  virtual nlohmann::json memory() const;
  /// Takes over what `memory` returned.
  virtual void load_memory(const nlohmann::json& memory);
  /// Whether the loss compares position t with label t + 1 (causal language models).
  virtual bool shifts_labels() const { return false; }
  /// Whether `num_items_in_batch` skips the first label of a row, which a model that shifts its
  /// labels never predicts. GPT-2 counts it, as in transformers.
  virtual bool counts_shifted_labels() const { return shifts_labels(); }
  /// Outputs that are not predictions, such as caches. Evaluation leaves them out.
  virtual std::vector<std::string> keys_to_ignore_at_inference() const { return {}; }
  /// Whether `forward` does the same work for every batch of a shape, without effects on the host,
  /// so that it may be recorded and replayed on a GPU (`cuda_graphs=auto`).
  virtual bool is_recordable() const { return false; }
  /// Whether `forward` is correct with bfloat16 parameters and computes its loss in float32
  /// (`bf16_mode=auto`).
  virtual bool takes_bf16_weights() const { return false; }
  /// The masks of a batch that forward does without when they are all ones: kernels without a mask
  /// are faster. The engine looks at these masks before it uploads a batch (`remember_full_masks`);
  /// forward then asks `Batch::known_all_ones`.
  virtual std::vector<std::string> droppable_masks() const { return {}; }
  /// How forward calls attention for a batch like `inputs`, so that the fastest implementation can
  /// be measured; the dtype is left to the caller. `nullopt`: there is no attention, or it is of a
  /// kind that is not measured.
  virtual std::optional<AttentionShape> attention_shape(const Batch& /*inputs*/) const {
    return std::nullopt;
  }
  /// The input whose size counts tokens and FLOPs, for example "input_ids" or "pixel_values".
  virtual std::string main_input_name() const { return "input_ids"; }

  /// The module whose parameter names go into files: this one, or one that it wraps.
  virtual torch::nn::Module& named_module() { return *this; }
  /// The same for a const model.
  const torch::nn::Module& named_module() const { return const_cast<Model*>(this)->named_module(); }

  /// Parameters and buffers by their names in files. Tied tensors appear once, under their first
  /// name. The tensors share storage with the model.
  virtual StateDict state_dict() const;
  /// Copies values into the parameters and buffers. Throws `Error` G-MODEL-2 with the missing,
  /// unexpected and mismatched names, and then changes nothing.
  virtual void load_state_dict(const StateDict& state);

  /// What `ModelFolder` writes: all of `state_dict()` as model.safetensors. A model that trains
  /// only an adapter overrides both and has the adapter's tensors under a stem of their own.
  virtual SavedWeights saved_weights() const;
  /// Takes back every tensor that `saved_weights()` names. Throws as `load_state_dict`.
  virtual void load_saved_weights(const StateDict& weights);

  /// The content of config.json; null when the model has none.
  virtual nlohmann::json config() const;
  /// Writes the files that belong beside the weights: config.json, generation_config.json.
  virtual void save_config(const std::filesystem::path& directory) const;

  /// Copies the tokenizer's bos, eos and pad ids into the config, where the model has one.
  virtual void align_special_tokens(const TokenizerLike&) {}
  /// Sets `use_cache` in the config, as the option of that name asks. Training never uses a cache.
  virtual void set_use_cache(bool) {}
  /// Floating-point operations of forward and backward for `inputs`; 0 when unknown.
  virtual double floating_point_ops(const Batch&) const { return 0; }

  /// Recomputes activations in the backward pass from now on. Throws `Error` G-MODEL-3 when the
  /// model does not support it.
  virtual void gradient_checkpointing_enable(const GradientCheckpointing& how = {});
  /// Adds NEFTune's noise to the input embeddings in training; unset turns it off. Throws `Error`
  /// G-MODEL-4 when the model has no embeddings.
  virtual void set_embedding_noise(std::optional<double> alpha);
};

/// The parameters of `module` that require a gradient, with their names, in module order. Tied
/// parameters appear once.
std::vector<std::pair<std::string, torch::Tensor>> trainable_parameters(
    const torch::nn::Module& module);

/// Looks which of the model's droppable masks are all ones, and notes it in the batch.
///
/// Only masks in host memory with two dimensions are looked at, so the call never waits for a
/// device. Call it before a batch is uploaded: the note travels with the batch, the masks stay in
/// it, and a user's `compute_loss` sees them.
void remember_full_masks(const Model& model, Batch& inputs);

/// Implementation details; not part of the interface.
namespace detail {

/// The model that `make_model` returns.
template <class Impl, class F>
class FunctionModel : public Model {
 public:
  /// Registers `module`; `function` is its forward pass.
  FunctionModel(std::shared_ptr<Impl> module, F function)
      : module_(register_module("module", std::move(module))), function_(std::move(function)) {}
  ModelOutput forward(const Batch& inputs, const ForwardOptions&) override {
    return function_(*module_, inputs);
  }
  torch::nn::Module& named_module() override { return *module_; }

 private:
  std::shared_ptr<Impl> module_;
  F function_;
};

/// The module itself.
template <class Impl>
std::shared_ptr<Impl> module_ptr(std::shared_ptr<Impl> module) {
  return module;
}
/// The module of a holder.
template <class Impl>
std::shared_ptr<Impl> module_ptr(const torch::nn::ModuleHolder<Impl>& holder) {
  return holder.ptr();
}

}  // namespace detail

/// Makes a Model of any torch module and a function `(Impl&, const Batch&) -> ModelOutput`.
/// `module` is a holder (`torch::nn::Linear(4, 1)`) or a `shared_ptr` to a module:
///
///     auto model = make_model(torch::nn::Linear(4, 1), [](auto& linear, const Batch& batch) {
///       const auto y = linear.forward(batch["x"]);
///       return ModelOutput{{"loss", torch::mse_loss(y, batch["labels"])}, {"logits", y}};
///     });
template <class Holder, class F>
std::shared_ptr<Model> make_model(Holder module, F function) {
  auto pointer = detail::module_ptr(module);
  using Impl = typename decltype(pointer)::element_type;
  return std::make_shared<detail::FunctionModel<Impl, F>>(std::move(pointer), std::move(function));
}

}  // namespace gradus
