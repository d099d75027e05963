#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/tokenizer_like.h>
#include <gradus/models/config_reader.h>
#include <gradus/models/layers/linear.h>
#include <gradus/models/pretrained_model.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/normalization.h>

namespace gradus {

using torch::Tensor;

namespace {

/// `num_labels` becomes the two tables that files hold.
void write_labels(nlohmann::json& config) {
  const auto found = config.find("num_labels");
  if (found == config.end()) return;
  const auto count = num_labels(config);
  config.erase("num_labels");
  const auto labels = config.find("id2label");
  if (labels != config.end() && labels->is_object() &&
      static_cast<int64_t>(labels->size()) == count)
    return;
  auto& names = config["id2label"] = nlohmann::json::object();
  auto& numbers = config["label2id"] = nlohmann::json::object();
  for (int64_t i = 0; i < count; ++i) {
    names[std::to_string(i)] = fmt::format("LABEL_{}", i);
    numbers[fmt::format("LABEL_{}", i)] = i;
  }
}

struct DtypeName {
  torch::Dtype dtype;
  const char* name;
};
constexpr DtypeName kDtypeNames[] = {{torch::kFloat, "float32"},
                                     {torch::kHalf, "float16"},
                                     {torch::kBFloat16, "bfloat16"},
                                     {torch::kDouble, "float64"}};

}  // namespace

std::string dtype_name(torch::Dtype dtype) {
  for (const auto& entry : kDtypeNames)
    if (entry.dtype == dtype) return entry.name;
  return c10::toString(dtype);
}

torch::Dtype dtype_named(const std::string& name) {
  const auto plain = name.rfind("torch.", 0) == 0 ? name.substr(6) : name;
  for (const auto& entry : kDtypeNames)
    if (plain == entry.name) return entry.dtype;
  throw Error(
      "G-MODEL-5", ErrorKind::model,
      fmt::format(
          "config.json: dtype must be float32, float16, bfloat16 or float64, received \"{}\"",
          name),
      "Correct the value in the model's config.json, or choose a dtype when loading.");
}

void Initializer::normal(const Tensor& tensor, double deviation) const {
  if (!wants(tensor)) return;
  torch::NoGradGuard no_grad;
  tensor.normal_(0.0, deviation);
}

void Initializer::constant(const Tensor& tensor, double value) const {
  if (!wants(tensor)) return;
  torch::NoGradGuard no_grad;
  tensor.fill_(value);
}

PreTrainedModel::PreTrainedModel(nlohmann::json config, std::string class_name,
                                 std::string base_prefix)
    : config_(std::move(config)),
      class_name_(std::move(class_name)),
      base_prefix_(std::move(base_prefix)) {
  const ConfigReader reader(config_);
  const auto range = reader.optional_number("initializer_range", 0.0, 1e6);
  initializer_range_ = range ? *range : reader.number("init_std", 0.02, 0.0, 1e6);
  if (range == 0.0) initializer_range_ = 0.02;  // as in transformers
  generation_config = GenerationConfig::from_model_config(config_);
}

void PreTrainedModel::align_special_tokens(const TokenizerLike& tokenizer) {
  std::vector<std::string> updated;
  const auto align = [&](const char* name, std::optional<int64_t> id,
                         std::vector<int64_t> generation_ids) {
    if (!id) return false;
    auto& value = config_[name];
    const bool is_list = value.is_array();
    std::vector<int64_t> ids;
    for (const auto& each : is_list ? value : nlohmann::json::array({value}))
      if (each.is_number_integer()) ids.push_back(each.get<int64_t>());
    const auto has = [&](const std::vector<int64_t>& some) {
      return std::find(some.begin(), some.end(), *id) != some.end();
    };
    if (has(ids) && has(generation_ids)) return false;
    updated.push_back(fmt::format("{}: {}", name, *id));
    std::erase(ids, *id);
    ids.insert(ids.begin(), *id);
    value = is_list ? nlohmann::json(ids) : nlohmann::json(*id);
    return true;
  };
  const auto listed = [](const std::optional<int64_t>& id) {
    return id ? std::vector{*id} : std::vector<int64_t>{};
  };
  auto& generation = generation_config.options;
  auto ends = generation.eos_token_id ? generation.eos_token_id->ids() : std::vector<int64_t>{};
  if (align("eos_token_id", tokenizer.eos_token_id(), ends)) {
    std::erase(ends, *tokenizer.eos_token_id());
    ends.insert(ends.begin(), *tokenizer.eos_token_id());
    generation.eos_token_id = TokenIds(std::move(ends));
  }
  if (align("bos_token_id", tokenizer.bos_token_id(), listed(generation.bos_token_id)))
    generation.bos_token_id = tokenizer.bos_token_id();
  if (align("pad_token_id", tokenizer.pad_token_id(), listed(generation.pad_token_id)))
    generation.pad_token_id = tokenizer.pad_token_id();
  if (!updated.empty())
    log_warning(
        fmt::format("The tokenizer's special tokens differ from the model's; config and generation "
                    "config take the tokenizer's: {}.",
                    fmt::join(updated, ", ")));
}

double PreTrainedModel::floating_point_ops(const Batch& inputs) const {
  const auto* input = inputs.find(main_input_name());
  if (input == nullptr) return 0;
  std::unordered_set<const void*> counted;  // tables, and tied tensors after the first time
  for (const auto& module : modules(/*include_self=*/false))
    if (const auto* table = module->as<layers::Embedding>())
      counted.insert(table->weight.unsafeGetTensorImpl());
  int64_t count = 0;
  for (const auto& parameter : parameters())
    if (counted.insert(parameter.unsafeGetTensorImpl()).second) count += parameter.numel();
  return 6.0 * double(input->numel()) * double(count);
}

nlohmann::json PreTrainedModel::config() const {
  auto config = config_;
  write_labels(config);
  config["architectures"] = nlohmann::json::array({class_name_});
  config.erase("torch_dtype");
  config["dtype"] = dtype_name(dtype());
  return config;
}

void PreTrainedModel::save_config(const std::filesystem::path& directory) const {
  Model::save_config(directory);
  if (can_generate()) generation_config.save(directory / "generation_config.json");
}

torch::Device PreTrainedModel::device() const {
  const auto parameters = named_module().parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters.front().device();
}

torch::Dtype PreTrainedModel::dtype() const {
  for (const auto& parameter : named_module().parameters())
    if (parameter.is_floating_point()) return parameter.scalar_type();
  return torch::kFloat;
}

Tensor PreTrainedModel::decode(const Batch&, layers::KeyValueCache&) {
  throw Error("G-GEN-3", ErrorKind::model,
              fmt::format("{} cannot generate: it has no language modeling head", class_name_),
              "Load the folder with AutoModelForCausalLM or AutoModelForSeq2SeqLM.");
}

Tensor PreTrainedModel::encode(const Batch&) {
  throw Error("G-GEN-3", ErrorKind::internal, fmt::format("{} has no encoder", class_name_), "");
}

Tensor PreTrainedModel::prepare_decoder_input_ids_from_labels(const Tensor&) const {
  throw Error("G-MODEL-30", ErrorKind::model,
              fmt::format("{} has no decoder that could use decoder_input_ids", class_name_),
              "Leave prepare_decoder_input_ids of the collator unset.");
}

void PreTrainedModel::init_weights(const Initializer& initializer) {
  std::vector<torch::nn::Module*> modules;
  named_module().apply([&](torch::nn::Module& module) { modules.push_back(&module); });
  // From the leaves up: a block may have its own rule for a layer inside.
  for (auto module = modules.rbegin(); module != modules.rend(); ++module)
    init_module(**module, initializer);
}

void PreTrainedModel::init_module(torch::nn::Module& module, const Initializer& initializer) const {
  if (const auto* linear = dynamic_cast<layers::Linear*>(&module)) {
    initializer.normal(linear->weight, initializer_range_);
    initializer.constant(linear->bias, 0.0);
  } else if (const auto* conv = dynamic_cast<layers::Conv1D*>(&module)) {
    initializer.normal(conv->weight, initializer_range_);
    initializer.constant(conv->bias, 0.0);
  } else if (const auto* table = dynamic_cast<layers::Embedding*>(&module)) {
    initializer.normal(table->weight, initializer_range_);
    if (table->padding_index && initializer.wants(table->weight)) {
      torch::NoGradGuard no_grad;
      table->weight.select(0, *table->padding_index).zero_();
    }
  } else if (const auto* rms = dynamic_cast<layers::RMSNorm*>(&module)) {
    initializer.constant(rms->weight, 1.0);
  } else if (const auto* norm = dynamic_cast<torch::nn::LayerNormImpl*>(&module)) {
    initializer.constant(norm->weight, 1.0);
    initializer.constant(norm->bias, 0.0);
  }
}

const WeightTable& PreTrainedModel::weight_table() const {
  static const WeightTable empty;
  return empty;
}

void PreTrainedModel::resize_token_embeddings(int64_t count) {
  auto* table = dynamic_cast<layers::Embedding*>(input_embedding_module());
  if (table == nullptr || count < 1)
    throw Error(
        "G-MODEL-13", ErrorKind::model,
        fmt::format("cannot resize the token embeddings of {} to {} rows", class_name_, count),
        table == nullptr ? "The model has no table of token embeddings."
                         : "Give the number of tokens of the tokenizer.");
  torch::NoGradGuard no_grad;
  std::unordered_set<const void*> done;
  auto resize = [&](Tensor tensor) {
    if (!tensor.defined() || !done.insert(tensor.unsafeGetTensorImpl()).second ||
        tensor.size(0) == count)
      return;
    const auto kept = tensor.detach().narrow(0, 0, std::min(count, tensor.size(0)));
    const auto more = count - kept.size(0);
    auto fresh =
        more > 0 ? at::cat({kept, tensor.detach()
                                      .mean(0, /*keepdim=*/true)
                                      .repeat(tensor.dim() == 1 ? std::vector<int64_t>{more}
                                                                : std::vector<int64_t>{more, 1})})
                 : kept.clone();
    tensor.set_data(fresh);
    tensor.mutable_grad() = Tensor();
  };
  resize(table->weight);
  for (const auto& tensor : vocabulary_parameters()) resize(tensor);
  config_["vocab_size"] = count;
}

}  // namespace gradus
