#pragma once

#include <gradus/models/lora_config.h>
#include <gradus/models/pretrained_model.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gradus {

class LoraLayer;

/// How many values a model has, and how many of them are trained.
struct ParameterCount {
  int64_t trainable = 0;  ///< Values that require a gradient.
  int64_t all = 0;        ///< All values, those of adapters included.
};

/// A model with LoRA adapters, as peft's `PeftModel`.
///
/// It trains and generates as the base model does, so every trainer takes it. The base model's
/// weights are frozen and stay where they are: the adapters hang on its layers. Folders hold the
/// adapter only (adapter_config.json and adapter_model.safetensors) and are those of peft, in both
/// directions. Two PeftModels of one base model share the adapters.
///
/// Ownership: shares the base model. Thread-safety: as a torch module.
class PeftModel : public PreTrainedModel {
 public:
  /// The name of the first adapter.
  static constexpr const char* kDefaultAdapter = "default";

  /// Freezes `base` and adds an adapter. The random numbers are those that peft draws from the same
  /// seed. Throws `Error` G-PEFT-1 for a bad config, G-PEFT-2 when no layer matches.
  PeftModel(std::shared_ptr<PreTrainedModel> base, LoraConfig config,
            const std::string& adapter_name = kDefaultAdapter);
  ~PeftModel() override;

  /// Loads an adapter onto `base`. It is frozen unless `is_trainable`. Throws `Error` G-PEFT-3 when
  /// the adapter is for another model, and what the constructor throws.
  static std::shared_ptr<PeftModel> from_pretrained(
      std::shared_ptr<PreTrainedModel> base, const std::filesystem::path& directory,
      const std::string& adapter_name = kDefaultAdapter, bool is_trainable = false);

  // Adapters.

  /// Adds another adapter, which is frozen until `set_adapter` chooses it. Throws `Error` G-PEFT-4
  /// when the name is taken.
  void add_adapter(const std::string& adapter_name, LoraConfig config);
  /// Adds another adapter from a folder.
  void load_adapter(const std::filesystem::path& directory, const std::string& adapter_name,
                    bool is_trainable = false);
  /// Adds an adapter with the config and the values of another one, frozen until `set_adapter`
  /// chooses it. Throws `Error` G-PEFT-4 when a name is unknown or taken.
  void copy_adapter(const std::string& from, const std::string& to);
  /// Whether there is an adapter of that name.
  bool has_adapter(const std::string& adapter_name) const {
    return adapters_.count(adapter_name) != 0;
  }
  /// Uses and trains this adapter; the others rest. Throws `Error` G-PEFT-4 for an unknown name.
  void set_adapter(const std::string& adapter_name);
  /// The adapter in use.
  const std::string& active_adapter() const { return active_; }
  /// The config of an adapter. Throws `Error` G-PEFT-4 for an unknown name.
  const LoraConfig& peft_config(const std::string& adapter_name = kDefaultAdapter) const;

  /// Turns the adapters off while it lives.
  class [[nodiscard]] DisabledAdapter {
   public:
    /// Turns the adapters of `model` off. The model must outlive this object.
    explicit DisabledAdapter(PeftModel& model) : model_(&model) { model_->enable(false); }
    ~DisabledAdapter() { model_->enable(true); }
    DisabledAdapter(const DisabledAdapter&) = delete;
    DisabledAdapter& operator=(const DisabledAdapter&) = delete;

   private:
    PeftModel* model_;
  };
  /// While the result lives, the model is the base model. With biases that were trained it is not:
  /// these stay.
  DisabledAdapter disable_adapter() { return DisabledAdapter(*this); }

  /// Multiplies what an adapter adds to its layers by `scale`: 1 is as it was trained, 0 nothing.
  /// Files do not keep it. Throws `Error` G-PEFT-4 for an unknown name.
  void set_scale(double scale, const std::string& adapter_name = kDefaultAdapter);
  /// Adds the active adapter to the weights, so that it costs nothing in forward. Throws `Error`
  /// G-PEFT-5 when a layer without bias has an adapter with one.
  void merge_adapter();
  /// Takes it out again.
  void unmerge_adapter();
  /// Merges the active adapter for good, removes all adapters and returns the base model.
  std::shared_ptr<PreTrainedModel> merge_and_unload();
  /// Removes all adapters and returns the base model as it was.
  std::shared_ptr<PreTrainedModel> unload();

  /// Counts the values of the model.
  ParameterCount count_parameters() const;
  /// "trainable params: 3,040 || all params: 25,728 || trainable%: 11.8159", as peft prints it.
  std::string trainable_parameters_text() const;
  /// The model below the adapters.
  const std::shared_ptr<PreTrainedModel>& base_model() const { return base_; }

  // Files.

  /// Writes the active adapter: adapter_config.json and adapter_model.safetensors.
  void save_pretrained(const std::filesystem::path& directory,
                       const std::string& max_shard_size = "50GB") const override;
  /// The active adapter under the names that peft gives its tensors. The base model's tables of
  /// tokens are among them when the adapter names them in `target_modules` or when the model has
  /// another number of tokens than its folder says.
  SavedWeights saved_weights() const override;
  /// Takes back what `saved_weights` names.
  void load_saved_weights(const StateDict& weights) override;
  /// Writes adapter_config.json.
  void save_config(const std::filesystem::path& directory) const override;

  // All below is answered by the base model.

  ModelOutput forward(const Batch& inputs, const ForwardOptions& options = {}) override;
  std::vector<std::string> input_names() const override { return base_->input_names(); }
  std::vector<std::string> label_names() const override { return base_->label_names(); }
  bool accepts_loss_kwargs() const override { return base_->accepts_loss_kwargs(); }
  bool shifts_labels() const override { return base_->shifts_labels(); }
  bool counts_shifted_labels() const override { return base_->counts_shifted_labels(); }
  std::vector<std::string> keys_to_ignore_at_inference() const override {
    return base_->keys_to_ignore_at_inference();
  }
  bool is_recordable() const override { return base_->is_recordable(); }
  nlohmann::json memory() const override { return base_->memory(); }
  void load_memory(const nlohmann::json& memory) override { base_->load_memory(memory); }
  /// As the base model, with LoRA alone: the optimizer trains float32 values of the adapter, which
  /// is rounded once in a step. False with DoRA and with `modules_to_save`.
  bool takes_bf16_weights() const override;
  std::vector<std::string> droppable_masks() const override { return base_->droppable_masks(); }
  std::optional<AttentionShape> attention_shape(const Batch& inputs) const override {
    return base_->attention_shape(inputs);
  }
  std::string main_input_name() const override { return base_->main_input_name(); }
  torch::nn::Module& named_module() override { return base_->named_module(); }
  nlohmann::json config() const override { return base_->config(); }
  void align_special_tokens(const TokenizerLike& tokenizer) override;
  void set_use_cache(bool use) override { base_->set_use_cache(use); }
  double floating_point_ops(const Batch& inputs) const override;
  void gradient_checkpointing_enable(const GradientCheckpointing& how = {}) override {
    base_->gradient_checkpointing_enable(how);
  }
  void set_embedding_noise(std::optional<double> alpha) override {
    base_->set_embedding_noise(alpha);
  }
  bool can_generate() const override { return base_->can_generate(); }
  std::optional<int64_t> position_limit() const override { return base_->position_limit(); }
  bool is_encoder_decoder() const override { return base_->is_encoder_decoder(); }
  bool decodes_in_place() const override { return base_->decodes_in_place(); }
  torch::Tensor decode(const Batch& inputs, layers::KeyValueCache& cache) override {
    return base_->decode(inputs, cache);
  }
  torch::Tensor encode(const Batch& inputs) override { return base_->encode(inputs); }
  torch::Tensor prepare_decoder_input_ids_from_labels(const torch::Tensor& labels) const override {
    return base_->prepare_decoder_input_ids_from_labels(labels);
  }
  torch::nn::Module* input_embedding_module() override { return base_->input_embedding_module(); }

 private:
  /// A tensor of a module in `modules_to_save`: the base model's, and the one that is trained.
  struct TrainedCopy {
    std::string name;      ///< "lm_head.weight"
    torch::Tensor before;  ///< Of the base model.
    torch::Tensor copy;    ///< Trained.
  };
  /// What belongs to one adapter.
  struct Adapter {
    LoraConfig config;                ///< Completed for the model.
    std::vector<std::string> layers;  ///< Names of the adapted layers, in the model's order.
    std::vector<TrainedCopy> copies;  ///< Of the modules to save.
  };

  Adapter& adapter(const std::string& name);
  const Adapter& adapter(const std::string& name) const;
  /// Adds the layers of a new adapter.
  void inject(const std::string& name, LoraConfig config);
  /// Uses an adapter, and lets exactly its parameters require gradients.
  void activate(const std::string& name, bool trainable);
  /// Puts the trained copies into the model, or what was there before.
  void use_copies(const Adapter& adapter, bool trained);
  /// Turns all adapters on or off.
  void enable(bool on);
  void remove_layers();
  void read_adapter(const std::filesystem::path& directory, const std::string& name);
  /// The tensors of an adapter by their names in files.
  StateDict tensors_of(const std::string& name) const;
  /// The base model's tables of tokens, going in and coming out, by their names in files. peft
  /// writes them, too, when they are adapted or have been resized.
  StateDict vocabulary_tensors() const;

  std::shared_ptr<PreTrainedModel> base_;                     ///< Never null.
  std::map<std::string, std::shared_ptr<LoraLayer>> layers_;  ///< By the names of the base layers.
  std::map<std::string, Adapter> adapters_;                   ///< By name.
  std::string active_;                                        ///< The name of the adapter in use.
};

/// Puts an adapter on a model, as peft's `get_peft_model`. See `PeftModel`.
///
///     auto model = get_peft_model(base, {.r = 8, .target_modules = {"q_proj", "v_proj"}});
std::shared_ptr<PeftModel> get_peft_model(
    std::shared_ptr<PreTrainedModel> base, LoraConfig config,
    const std::string& adapter_name = PeftModel::kDefaultAdapter);

/// The folder of the base model when `directory` holds an adapter; unset for any other folder.
/// `model_from_pretrained` loads the base model and then the adapter. Throws `Error` G-PEFT-1 when
/// adapter_config.json cannot be used or names no model.
std::optional<std::filesystem::path> base_of_adapter(const std::filesystem::path& directory);

}  // namespace gradus
