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

/// How a model is loaded.
struct PretrainedOptions {
  /// Type of the parameters; by default `dtype` of config.json, else that of the weights.
  std::optional<torch::Dtype> dtype = std::nullopt;
  torch::Device device = torch::kCPU;  ///< Where the parameters are placed.
  bool strict = false;  ///< Whether missing and unexpected names are errors instead of warnings.
  /// Whether tensors of another shape are newly initialised instead of being an error.
  bool ignore_mismatched_sizes = false;
  /// Replaces keys of config.json: `{{"num_labels", 3}}`.
  nlohmann::json config = nlohmann::json::object();
};

/// How the names and shapes of a weight file differ from the model.
struct LoadReport {
  /// A tensor whose shape differs.
  struct Mismatch {
    std::string name;            ///< Of the tensor.
    std::vector<int64_t> file;   ///< Its shape in the file.
    std::vector<int64_t> model;  ///< Its shape in the model.
  };
  std::vector<std::string> missing;     ///< In the model, but not in the file.
  std::vector<std::string> unexpected;  ///< In the file, but not in the model.
  std::vector<Mismatch> mismatched;     ///< In both, with different shapes.
  /// Whether everything matches.
  bool clean() const { return missing.empty() && unexpected.empty() && mismatched.empty(); }
};

/// Draws initial values for parameters, for all of them or only for some.
class Initializer {
 public:
  /// Initialises all parameters.
  Initializer() = default;
  /// Initialises only these parameters, given by `unsafeGetTensorImpl()`.
  explicit Initializer(std::unordered_set<const void*> wanted)
      : wanted_(std::move(wanted)), all_(false) {}
  /// Whether `tensor` is to be initialised.
  bool wants(const torch::Tensor& tensor) const {
    return tensor.defined() && (all_ || wanted_.count(tensor.unsafeGetTensorImpl()) != 0);
  }
  /// Draws from normal(0, `deviation`) if `tensor` is wanted.
  void normal(const torch::Tensor& tensor, double deviation) const;
  /// Fills `tensor` with `value` if it is wanted.
  void constant(const torch::Tensor& tensor, double value) const;

 private:
  std::unordered_set<const void*> wanted_;
  bool all_ = true;
};

/// A model with a config.json, which loads from and saves to a Hugging Face folder and may be able
/// to generate.
///
/// Parameter names are those of transformers. Tied parameters are one tensor. Thread-safety: as a
/// torch module.
class PreTrainedModel : public Model {
 public:
  // Files.

  nlohmann::json config() const override;
  /// Writes config.json, and generation_config.json for models that generate.
  void save_config(const std::filesystem::path& directory) const override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  /// Writes weights, config.json and generation_config.json as transformers does, and creates the
  /// folder. A state dict above `max_shard_size` is split into several files.
  virtual void save_pretrained(const std::filesystem::path& directory,
                               const std::string& max_shard_size = "50GB") const;
  /// Loads the weights of a folder: model.safetensors, its shards, pytorch_model.bin or its shards.
  ///
  /// The parameters are copies: the files may change once this returns. Missing parameters are
  /// initialised. Logs the same warnings as transformers. Throws `Error` G-MODEL-7 when there are
  /// no weights, G-MODEL-8 for other shapes (with `strict` also for other names), and G-IO-4 when a
  /// file becomes shorter while it is loaded.
  LoadReport load_weights(const std::filesystem::path& directory,
                          const PretrainedOptions& options = {});

  // Training.

  bool accepts_loss_kwargs() const override { return true; }
  /// 6 × tokens × parameters without embeddings, as transformers counts.
  double floating_point_ops(const Batch& inputs) const override;
  /// Copies the tokenizer's special ids into config and generation config, with a warning for each
  /// change. Further end tokens of the generation config are kept.
  void align_special_tokens(const TokenizerLike& tokenizer) override;
  void set_use_cache(bool use) override { config_["use_cache"] = use; }
  bool is_recordable() const override { return true; }
  bool takes_bf16_weights() const override { return true; }
  std::vector<std::string> keys_to_ignore_at_inference() const override {
    return {"past_key_values"};
  }

  // Generation.

  /// Generates token ids (rows × num_return_sequences, tokens). A row holds the prompt and the new
  /// tokens; of an encoder-decoder model it holds the decoder's tokens. Shorter rows are padded.
  ///
  /// Runs in evaluation mode, without gradients, on the model's device, and restores the previous
  /// mode. Throws `Error` G-GEN-2 for options that do not make sense, and G-GEN-3 when the model
  /// cannot generate.
  torch::Tensor generate(const Batch& inputs, const GenerationOptions& options = {});
  /// The defaults of `generate`, from generation_config.json.
  GenerationConfig generation_config;
  /// Whether the model has a language modeling head.
  virtual bool can_generate() const { return false; }
  /// How many tokens a row can have when the model generates: the size of its table of positions.
  /// `nullopt` when there is no such table (rotary or relative positions).
  virtual std::optional<int64_t> position_limit() const { return std::nullopt; }
  /// Whether the model has a separate encoder, as T5 has.
  virtual bool is_encoder_decoder() const { return false; }
  /// One step of generation. Returns the logits (rows, vocabulary) after the last token.
  ///
  /// `inputs` holds the new tokens (`input_ids`), an `attention_mask` over all tokens and the
  /// `position_ids` of the new ones. An encoder-decoder model gets `decoder_input_ids`,
  /// `encoder_hidden_states` and the encoder's `attention_mask`. A row of these two serves all
  /// beams of a prompt, which follow each other in `decoder_input_ids`.
  virtual torch::Tensor decode(const Batch& inputs, layers::KeyValueCache& cache);
  /// Whether `decode` of one token per row takes a cache of fixed shape
  /// (`layers::KeyValueCache::fixed`), so that its steps can be recorded.
  virtual bool decodes_in_place() const { return false; }
  /// The encoder's output for a prompt; only for encoder-decoder models.
  virtual torch::Tensor encode(const Batch& inputs);
  /// The decoder's input that predicts `labels`: the labels shifted right after the start token.
  /// Only for encoder-decoder models; `DataCollatorForSeq2Seq` calls it. Throws `Error` G-MODEL-30
  /// when the config has no start or pad token.
  virtual torch::Tensor prepare_decoder_input_ids_from_labels(const torch::Tensor& labels) const;

  // About the model.

  /// The class in transformers: "GPT2LMHeadModel".
  const std::string& class_name() const { return class_name_; }
  /// The config without a copy; `config()` returns one.
  const nlohmann::json& config_json() const { return config_; }
  /// Where the parameters are.
  torch::Device device() const;
  /// Type of the parameters.
  torch::Dtype dtype() const;
  /// The table of token embeddings; null when the model has none.
  virtual torch::nn::Module* input_embedding_module() { return nullptr; }
  /// Resizes embeddings and head to `count` token ids and updates `vocab_size`. New rows start as
  /// the mean of the old ones.
  virtual void resize_token_embeddings(int64_t count);

  /// Draws new values for the parameters that `initializer` wants, from the same distributions as
  /// transformers.
  void init_weights(const Initializer& initializer = {});

 protected:
  /// `class_name` is the class in transformers. `base_prefix` is the name of the body's module
  /// ("transformer"): names in files may lack it, and a body without head ignores it.
  PreTrainedModel(nlohmann::json config, std::string class_name, std::string base_prefix);

  /// Initialises one module of the tree. The default draws matrices and embeddings from normal(0,
  /// initializer_range), and sets biases to zero and the weights of norms to one.
  virtual void init_module(torch::nn::Module& module, const Initializer& initializer) const;
  /// How names in files differ from those of modules.
  virtual const WeightTable& weight_table() const;
  /// Parameters of the head whose first dimension is the vocabulary; resized with it.
  virtual std::vector<torch::Tensor> vocabulary_parameters() { return {}; }
  /// `initializer_range` of the config; 0.02 by default.
  double initializer_range() const { return initializer_range_; }

  nlohmann::json config_;  ///< The content of config.json.

 private:
  std::string class_name_, base_prefix_;
  double initializer_range_ = 0.02;
};

/// The name of a type in config.json: "float32" for `torch::kFloat`.
std::string dtype_name(torch::Dtype dtype);
/// The type of a name. Throws `Error` G-MODEL-5 when it is not a floating type.
torch::Dtype dtype_named(const std::string& name);

}  // namespace gradus
