#pragma once

#include <gradus/models/generation_config.h>
#include <gradus/models/layers/attention.h>
#include <gradus/models/model.h>
#include <gradus/models/weight_table.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace gradus {

struct PretrainedOptions {
  std::optional<torch::Dtype> dtype =
      std::nullopt;  ///< default: `dtype` of config.json, else that of the weights
  torch::Device device = torch::kCPU;
  bool strict = false;  ///< missing and unexpected names are an error, not a warning
  bool ignore_mismatched_sizes =
      false;  ///< tensors of another shape are initialised anew instead of an error
  nlohmann::json config =
      nlohmann::json::object();  ///< replaces keys of config.json: {"num_labels": 3}
};

/// What did not fit when weights were loaded.
struct LoadReport {
  struct Mismatch {
    std::string name;
    std::vector<int64_t> file, model;  ///< the two shapes
  };
  std::vector<std::string> missing, unexpected;
  std::vector<Mismatch> mismatched;
  bool clean() const { return missing.empty() && unexpected.empty() && mismatched.empty(); }
};

/// Gives values to parameters; only to those that are wanted.
class Initializer {
 public:
  /// All parameters.
  Initializer() = default;
  /// Only these (by `unsafeGetTensorImpl()`).
  explicit Initializer(std::unordered_set<const void*> wanted)
      : wanted_(std::move(wanted)), all_(false) {}
  bool wants(const torch::Tensor& tensor) const {
    return tensor.defined() && (all_ || wanted_.count(tensor.unsafeGetTensorImpl()) != 0);
  }
  void normal(const torch::Tensor& tensor, double deviation) const;
  void constant(const torch::Tensor& tensor, double value) const;

 private:
  std::unordered_set<const void*> wanted_;
  bool all_ = true;
};

/// A model of the zoo: built from a config.json, loaded from and saved to a Hugging Face folder,
/// able to generate.
///
/// Parameter names are those of the files. Tied tensors are one tensor. Thread-safety: as a torch
/// module.
class PreTrainedModel : public Model {
 public:
  // files
  nlohmann::json config() const override;
  /// config.json, and generation_config.json for models that generate.
  void save_config(const std::filesystem::path& directory) const override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  /// Writes weights, config.json and generation_config.json as transformers' save_pretrained does.
  /// Creates the folder.
  void save_pretrained(const std::filesystem::path& directory,
                       const std::string& max_shard_size = "50GB") const;
  /// Loads `model.safetensors`, its shards, or `pytorch_model.bin` (or its shards) of a folder. On
  /// the CPU and without change of dtype the parameters become views of the mapped files. What is
  /// missing is initialised. Warns as transformers does; throws `Error` G-MODEL-7 (no weights),
  /// G-MODEL-8 (shapes; with `strict` also names).
  LoadReport load_weights(const std::filesystem::path& directory,
                          const PretrainedOptions& options = {});

  // training
  bool accepts_loss_kwargs() const override { return true; }
  /// 6 × tokens × parameters without the tables of embeddings, as transformers counts.
  double floating_point_ops(const Batch& inputs) const override;
  /// Takes the ids the tokenizer has into config and generation config; end tokens that are there
  /// stay. Warns of changes.
  void align_special_tokens(const TokenizerLike& tokenizer) override;
  void set_use_cache(bool use) override { config_["use_cache"] = use; }
  bool is_recordable() const override { return true; }
  bool takes_bf16_weights() const override { return true; }
  std::vector<std::string> keys_to_ignore_at_inference() const override {
    return {"past_key_values"};
  }

  // generation
  /// Token ids (rows × num_return_sequences, tokens): the prompt and what follows it
  /// (encoder-decoder: what the decoder wrote), shorter rows filled with the pad token. Runs in
  /// evaluation mode, without gradients, on the model's device; the mode before is restored. Throws
  /// G-GEN-2 for options that make no sense, G-GEN-3 when the model cannot generate.
  torch::Tensor generate(const Batch& inputs, const GenerationOptions& options = {});
  GenerationConfig generation_config;
  virtual bool can_generate() const { return false; }
  virtual bool is_encoder_decoder() const { return false; }
  /// One step: `inputs` holds the new tokens (`input_ids`), `attention_mask` over all tokens and
  /// `position_ids` of the new ones; encoder-decoder models get `decoder_input_ids`,
  /// `encoder_hidden_states` and the encoder's `attention_mask`. Gives the logits (rows,
  /// vocabulary) behind the last token.
  virtual torch::Tensor decode(const Batch& inputs, layers::KeyValueCache& cache);
  /// The encoder's output for a prompt; encoder-decoder models only.
  virtual torch::Tensor encode(const Batch& inputs);
  /// Encoder-decoder models: what the decoder reads to predict `labels`, i.e. these behind the
  /// start token. For `DataCollatorForSeq2Seq`. Throws G-MODEL-30 when the config names no start or
  /// pad token.
  virtual torch::Tensor prepare_decoder_input_ids_from_labels(const torch::Tensor& labels) const;

  // about the model
  const std::string& class_name() const {
    return class_name_;
  }  ///< transformers' name: "GPT2LMHeadModel"
  const nlohmann::json& config_json() const { return config_; }
  torch::Device device() const;
  torch::Dtype dtype() const;
  /// The table of token vectors. Null where the model has none.
  virtual torch::nn::Module* input_embedding_module() { return nullptr; }
  /// Makes room for `count` token ids, in the head too; new rows start as the mean of the old ones.
  /// Updates vocab_size.
  virtual void resize_token_embeddings(int64_t count);

  /// Draws new values for the parameters `initializer` wants, from the distributions transformers
  /// uses.
  void init_weights(const Initializer& initializer = {});

 protected:
  /// `base_prefix`: under which name the body stands ("transformer"); names of files without it are
  /// completed, and a body alone takes them without it.
  PreTrainedModel(nlohmann::json config, std::string class_name, std::string base_prefix);

  /// One module of the tree. The default: normal(0, initializer_range) for matrices and tables,
  /// zero biases, ones for norms.
  virtual void init_module(torch::nn::Module& module, const Initializer& initializer) const;
  virtual const WeightTable& weight_table() const;
  /// Parameters of the output layer that grow with the vocabulary (weights (ids, width), biases
  /// (ids)).
  virtual std::vector<torch::Tensor> vocabulary_parameters() { return {}; }
  double initializer_range() const { return initializer_range_; }

  nlohmann::json config_;

 private:
  std::string class_name_, base_prefix_;
  double initializer_range_ = 0.02;
};

/// "float32" for torch::kFloat: the names of config.json.
std::string dtype_name(torch::Dtype dtype);
/// Throws `Error` G-MODEL-5 for a name that is no floating type.
torch::Dtype dtype_named(const std::string& name);

}  // namespace gradus
