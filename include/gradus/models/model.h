#pragma once

#include <gradus/config/gradient_checkpointing.h>
#include <gradus/data/batch.h>
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

struct ForwardOptions {
  std::optional<torch::Tensor>
      num_items_in_batch;  ///< labels counted over the whole window; the loss is divided by it
  bool output_hidden_states = false;
  bool output_attentions = false;
  bool need_logits =
      true;  ///< false in training lets a model skip full logits when it computes the loss itself
};

/// Names and tensors of a model, in the order of its modules.
using StateDict = torch::OrderedDict<std::string, torch::Tensor>;

/// What the trainers train: a torch module that takes a `Batch` and gives a `ModelOutput`.
class Model : public torch::nn::Module {
 public:
  virtual ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) = 0;

  /// The columns forward reads, for `remove_unused_columns`; empty keeps every column.
  virtual std::vector<std::string> input_names() const { return {}; }
  virtual std::vector<std::string> label_names() const { return {"labels"}; }
  /// Whether forward divides its loss by `num_items_in_batch` when that is given.
  virtual bool accepts_loss_kwargs() const { return false; }
  /// Whether the loss compares position t with label t + 1 (causal language models).
  virtual bool shifts_labels() const { return false; }
  /// Whether `num_items_in_batch` counts labels from the second position on. As `shifts_labels`,
  /// except that transformers counts all positions for GPT-2, and so do we.
  virtual bool counts_shifted_labels() const { return shifts_labels(); }
  /// Outputs that are no predictions (caches and the like); left out of evaluation.
  virtual std::vector<std::string> keys_to_ignore_at_inference() const { return {}; }
  /// Whether forward is the same work for every batch of a shape, without host-side effects, so
  /// that it may be recorded and replayed on a GPU (`cuda_graphs=auto`).
  virtual bool is_recordable() const { return false; }
  /// Whether forward works as it should with bfloat16 parameters, the loss in float32
  /// (`bf16_mode=auto`).
  virtual bool takes_bf16_weights() const { return false; }
  /// The tensor whose size measures a batch for FLOP and token counts ("input_ids", "pixel_values"
  /// …).
  virtual std::string main_input_name() const { return "input_ids"; }

  /// The module whose parameter names go into files: this one, or the one it wraps.
  virtual torch::nn::Module& named_module() { return *this; }
  const torch::nn::Module& named_module() const { return const_cast<Model*>(this)->named_module(); }

  /// Parameters and buffers by the names used in files; tied tensors once, under their first name.
  virtual StateDict state_dict() const;
  /// Copies values in. Throws `Error` G-MODEL-2 with the missing, unexpected and mismatched names.
  virtual void load_state_dict(const StateDict& state);

  /// `config.json` of the saved folder; null when the model has none.
  virtual nlohmann::json config() const;
  /// Writes whatever belongs beside the weights (config.json, generation_config.json).
  virtual void save_config(const std::filesystem::path& directory) const;

  /// Takes over the tokenizer's special ids (bos, eos, pad) where the model has a config for them.
  virtual void align_special_tokens(const TokenizerLike&) {}
  /// The option `use_cache`, which a Trainer writes into the config of its model. Training itself
  /// keeps no keys and values.
  virtual void set_use_cache(bool) {}
  /// Floating-point operations of forward and backward on `inputs`; 0 when the model cannot say.
  virtual double floating_point_ops(const Batch&) const { return 0; }

  /// Recompute activations in backward. Throws G-MODEL-3 when the model has no such points.
  virtual void gradient_checkpointing_enable(const GradientCheckpointing& how = {});
  /// NEFTune: noise on the input embeddings while training; nullopt switches it off. Throws
  /// G-MODEL-4 where there are none.
  virtual void set_embedding_noise(std::optional<double> alpha);
};

/// The parameters to train of `module`, tied ones once, in module order, with their names.
std::vector<std::pair<std::string, torch::Tensor>> trainable_parameters(
    const torch::nn::Module& module);

namespace detail {

template <class Impl, class F>
class FunctionModel : public Model {
 public:
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

template <class Impl>
std::shared_ptr<Impl> module_ptr(std::shared_ptr<Impl> module) {
  return module;
}
template <class Impl>
std::shared_ptr<Impl> module_ptr(const torch::nn::ModuleHolder<Impl>& holder) {
  return holder.ptr();
}

}  // namespace detail

/// Makes a model of any torch module and a function `(Impl&, const Batch&) -> ModelOutput`.
/// `module` is a holder (`torch::nn::Linear(4, 1)`) or a `shared_ptr` to a module.
template <class Holder, class F>
std::shared_ptr<Model> make_model(Holder module, F function) {
  auto pointer = detail::module_ptr(module);
  using Impl = typename decltype(pointer)::element_type;
  return std::make_shared<detail::FunctionModel<Impl, F>>(std::move(pointer), std::move(function));
}

}  // namespace gradus
