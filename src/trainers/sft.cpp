#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/data/collators.h>
#include <gradus/device/runtime.h>
#include <gradus/models/peft_model.h>
#include <gradus/text/tokenizer.h>
#include <gradus/trainers/sft.h>

#include "train/label_smoother.h"
#include "trainers/sft_data.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr std::string_view kTruncationModes[] = {"keep_start", "keep_end"};
constexpr std::string_view kPackingStrategies[] = {"bfd", "bfd_split", "wrapped"};
constexpr std::string_view kSftLosses[] = {"nll", "dft", "chunked_nll"};

constexpr OptionRow<SFTConfig> kSftRows[] = {
    {&SFTConfig::model_init_kwargs, "model_init_kwargs", Group::trainer, holds(Shape::dictionary),
     "Accepted for trl's sake; the model's own flags say how it is loaded."},
    {&SFTConfig::router_aux_loss_coef, "router_aux_loss_coef", Group::trainer, at_least(0),
     "Weight of the balancing loss of mixtures of experts, which gradus does not have."},
    {&SFTConfig::chat_template_path, "chat_template_path", Group::trainer, any_value(),
     "A file with the chat template to use (.jinja)."},
    {&SFTConfig::dataset_text_field, "dataset_text_field", Group::trainer, any_value(),
     "Column with the text."},
    {&SFTConfig::dataset_kwargs, "dataset_kwargs", Group::trainer, holds(Shape::dictionary),
     "{\"skip_prepare_dataset\": true}: rows hold input_ids and labels already."},
    {&SFTConfig::dataset_num_proc, "dataset_num_proc", Group::trainer, at_least(1),
     "Accepted for trl's sake; rows are prepared in one process."},
    {&SFTConfig::eos_token, "eos_token", Group::trainer, any_value(),
     "End token; unset: the tokenizer's."},
    {&SFTConfig::max_length, "max_length", Group::trainer, at_least(1),
     "Longest row in tokens; longer ones are cut. With packing, the length of the packed rows."},
    {&SFTConfig::truncation_mode, "truncation_mode", Group::trainer, one_of(kTruncationModes),
     "Which end of a longer row stays."},
    {&SFTConfig::shuffle_dataset, "shuffle_dataset", Group::trainer, any_value(),
     "Shuffle the rows once, before training."},
    {&SFTConfig::packing, "packing", Group::trainer, any_value(),
     "Join rows into rows of max_length."},
    {&SFTConfig::packing_strategy, "packing_strategy", Group::trainer, one_of(kPackingStrategies),
     "bfd: best fit, cuts what is too long; bfd_split: splits it; wrapped: joins and cuts."},
    {&SFTConfig::padding_free, "padding_free", Group::trainer, any_value(),
     "A batch is one row without padding; always so with packing by bfd and bfd_split."},
    {&SFTConfig::pad_to_multiple_of, "pad_to_multiple_of", Group::trainer, at_least(1),
     "Round the padded length up to a multiple."},
    {&SFTConfig::eval_packing, "eval_packing", Group::trainer, any_value(),
     "Pack the rows to evaluate on, too; unset: as packing."},
    {&SFTConfig::completion_only_loss, "completion_only_loss", Group::trainer, any_value(),
     "Leave prompts out of the loss; unset: when rows have prompt and completion."},
    {&SFTConfig::assistant_only_loss, "assistant_only_loss", Group::trainer, any_value(),
     "Only what the assistant says counts; the chat template needs {% generation %}."},
    {&SFTConfig::loss_type, "loss_type", Group::trainer, one_of(kSftLosses),
     "nll: negative log-likelihood; dft: weighted by the probability; chunked_nll: as nll."},
    {&SFTConfig::activation_offloading, "activation_offloading", Group::trainer, any_value(),
     "Keep the activations of gradient checkpointing in host memory."},
    {&SFTConfig::pad_token, "pad_token", Group::trainer, any_value(),
     "Padding token; unset: the tokenizer's, else the end token."},
};

[[noreturn]] void refuse_sft(const std::string& message, const std::string& advice) {
  throw Error("G-SFT-1", ErrorKind::usage, message, advice);
}

/// The tokenizer with the end and padding tokens and the chat template of the arguments.
std::shared_ptr<Tokenizer> sft_tokenizer(const std::shared_ptr<TokenizerLike>& given,
                                         const SFTConfig& args) {
  // Texts are made into tokens here, which TokenizerLike cannot do.
  auto tokenizer = std::dynamic_pointer_cast<Tokenizer>(given);
  if (!tokenizer)
    refuse_sft("SFTTrainer needs a gradus::Tokenizer as processing_class",
               "Load it with Tokenizer::from_pretrained.");
  if (args.eos_token) tokenizer->set_special_token("eos_token", *args.eos_token);
  if (args.chat_template_path) {
    const std::filesystem::path path = *args.chat_template_path;
    if (path.extension() != ".jinja" && path.extension() != ".j2")
      refuse_sft(fmt::format("chat_template_path {} is not a .jinja file", path.string()),
                 "Give the file with the template.");
    tokenizer->set_chat_template(read_file(path));
  }
  const auto pad = args.pad_token                          ? args.pad_token
                   : tokenizer->special_token("pad_token") ? tokenizer->special_token("pad_token")
                                                           : tokenizer->special_token("eos_token");
  if (!pad) refuse_sft("the tokenizer has no token to pad with", "Name one with --pad_token.");
  tokenizer->set_special_token("pad_token", *pad);
  return tokenizer;
}

/// The model to train: with an adapter, if one is asked for.
std::shared_ptr<Model> sft_model(const std::shared_ptr<Model>& given,
                                 const std::optional<LoraConfig>& adapter) {
  if (!given) refuse_sft("SFTTrainer has no model", "Set `model`.");
  if (!given->shifts_labels())
    refuse_sft("SFTTrainer trains causal language models only",
               "Load the model with AutoModelForCausalLM.");
  if (!adapter) return given;
  // Adapters hang on the layers of the library's models.
  const auto base = std::dynamic_pointer_cast<PreTrainedModel>(given);
  // A second adapter would train on top of the first one.
  const auto adapted = std::dynamic_pointer_cast<PeftModel>(given);
  if (!base || adapted)
    refuse_sft(base ? "the model has an adapter already, and peft_config asks for another one"
                    : "peft_config needs a model of the library",
               "Give a model without adapter, or leave peft_config out.");
  return get_peft_model(base, *adapter);
}

bool skips_preparation(const SFTConfig& args) {
  return args.dataset_kwargs.is_object() &&
         args.dataset_kwargs.value("skip_prepare_dataset", false);
}

bool is_padding_free(const SFTConfig& args) {
  return args.padding_free || (args.packing && args.packing_strategy != "wrapped");
}

void check_sft_args(const SFTConfig& args, bool has_collator) {
  if (args.packing && !args.max_length)
    refuse_sft("packing needs max_length, the length of the packed rows", "Set --max_length.");
  if (is_padding_free(args) && has_collator)
    refuse_sft("a data collator of one's own cannot be used without padding",
               "Turn padding_free and packing off, or leave the collator out.");
  if (args.padding_free && !args.packing && args.max_length)
    refuse_sft("padding_free without packing does not keep max_length",
               "Turn packing on, or unset max_length.");
  if (args.router_aux_loss_coef.value_or(0) != 0)
    refuse_sft("router_aux_loss_coef is for mixtures of experts", "Leave it out.");
}

/// The tokens that a resumed run has seen, as far as its log says.
Tensor logged_tokens(const TrainerState& state, const torch::TensorOptions& options) {
  int64_t tokens = 0;
  for (const auto& entry : state.log_history)
    if (entry.contains("num_tokens")) tokens = int64_t(entry["num_tokens"].get<double>());
  return torch::full({}, tokens, options);
}

}  // namespace

std::span<const OptionRow<SFTConfig>> SFTConfig::own_options() { return kSftRows; }

SFTConfig::operator TrainingArguments() const {
  auto common = common_arguments(*this);
  common.bf16 = bf16.value_or(!fp16);
  return common;
}

SFTConfig SFTConfig::resolved() const {
  auto args = *this;
  if (!args.bf16) args.bf16 = !args.fp16;
  if (args.loss_type == "chunked_nll") args.loss_type = "nll";
  if (args.activation_offloading && args.gradient_checkpointing) {
    if (args.gradient_checkpointing_kwargs.is_null())
      args.gradient_checkpointing_kwargs = nlohmann::json::object();
    args.gradient_checkpointing_kwargs["offload"] = true;
  }
  return resolve_fields(args);
}

SFTTrainerOptions sft_options(TrainerOptions options, SFTConfig args) {
  return {.model = std::move(options.model),
          .args = std::move(args),
          .data_collator = std::move(options.data_collator),
          .train_dataset = std::move(options.train_dataset),
          .eval_dataset = std::move(options.eval_dataset),
          .processing_class = std::move(options.processing_class),
          .compute_loss_func = std::move(options.compute_loss_func),
          .compute_metrics = std::move(options.compute_metrics),
          .callbacks = std::move(options.callbacks),
          .optimizers = std::move(options.optimizers),
          .optimizer_factory = std::move(options.optimizer_factory),
          .preprocess_logits_for_metrics = std::move(options.preprocess_logits_for_metrics)};
}

/// What the constructor has made of its options.
struct SFTTrainer::Prepared {
  TrainerOptions options;
  bool has_loss_function = false;
};

SFTTrainer::Prepared SFTTrainer::prepare(SFTTrainerOptions given, const SFTConfig& args) {
  check_sft_args(args, bool(given.data_collator));
  Prepared prepared;
  auto& options = prepared.options;
  const auto tokenizer = sft_tokenizer(given.processing_class, args);
  device::seed_all(args.seed);  // the adapter's matrices are random
  options.model = sft_model(given.model, given.peft_config);
  options.args = args;
  options.processing_class = tokenizer;
  options.data_collator =
      given.data_collator
          ? given.data_collator
          : DataCollator(DataCollatorForSft({.pad_token_id = *tokenizer->pad_token_id(),
                                             .padding_free = is_padding_free(args),
                                             .pad_to_multiple_of = args.pad_to_multiple_of}));
  if (!given.train_dataset) refuse_sft("SFTTrainer has no train_dataset", "Set `train_dataset`.");

  SftPreparation how{
      .tokenizer = *tokenizer, .args = args, .formatting_func = given.formatting_func};
  const auto& rows = given.train_dataset.map_style();
  const auto sample = rows && rows->size() > 0 ? rows->get(0) : Example();
  how.completion_only = args.completion_only_loss.value_or(sample.contains("prompt") &&
                                                           sample.contains("completion"));
  if (args.assistant_only_loss && !is_conversational(sample) && !sample.contains("input_ids"))
    refuse_sft("assistant_only_loss is set, but the data are not conversations",
               "Give messages, or leave assistant_only_loss out.");
  if (how.completion_only && how.formatting_func)
    refuse_sft(
        "formatting_func makes one text of a row, so completion_only_loss cannot find the "
        "completion",
        "Leave one of them out.");
  const auto made = [&](const DatasetRef& set, const std::string& name, bool packing) {
    if (skips_preparation(args)) return set;
    how.packing = packing;
    return DatasetRef(prepare_sft_rows(set, how, name));
  };
  options.train_dataset = made(given.train_dataset, "train_dataset", args.packing);
  const bool packs = args.eval_packing.value_or(args.packing);
  if (given.eval_dataset.is_named()) {
    EvalDatasets::Named named;
    for (const auto& [name, set] : given.eval_dataset.named())
      named.emplace_back(name, made(set, name, packs));
    options.eval_dataset = EvalDatasets(std::move(named));
  } else if (given.eval_dataset) {
    options.eval_dataset = made(given.eval_dataset.single(), "eval_dataset", packs);
  }
  prepared.has_loss_function = bool(given.compute_loss_func);
  options.compute_loss_func = std::move(given.compute_loss_func);
  options.compute_metrics = std::move(given.compute_metrics);
  options.callbacks = std::move(given.callbacks);
  options.optimizers = std::move(given.optimizers);
  options.optimizer_factory = std::move(given.optimizer_factory);
  options.preprocess_logits_for_metrics = std::move(given.preprocess_logits_for_metrics);
  return prepared;
}

SFTTrainer::SFTTrainer(SFTTrainerOptions options)
    : SFTTrainer(options.args.resolved(), prepare(options, options.args.resolved())) {}

SFTTrainer::SFTTrainer(SFTConfig args, Prepared prepared)
    : Trainer(prepared.options),
      args_(std::move(args)),
      collator_(prepared.options.data_collator),
      train_dataset_(prepared.options.train_dataset),
      has_loss_function_(prepared.has_loss_function) {}

DataLoaderOptions SFTTrainer::with_own_collator(DataLoaderOptions options,
                                                const DatasetRef& dataset) const {
  options.dataset = dataset;
  options.collator = collator_;
  return options;
}

DataLoaderOptions SFTTrainer::train_dataloader_options() {
  return with_own_collator(Trainer::train_dataloader_options(), train_dataset_);
}

DataLoaderOptions SFTTrainer::eval_dataloader_options(const DatasetRef& eval_dataset) {
  eval_rows_left_ = eval_dataset.size().value_or(0);
  return with_own_collator(Trainer::eval_dataloader_options(eval_dataset), eval_dataset);
}

int64_t SFTTrainer::rows_of_loss(int64_t rows) const {
  if (rows == 0 || !is_padding_free(args_)) return rows;
  const auto joined = std::min(args().eval_batch_size(), eval_rows_left_);
  eval_rows_left_ -= joined;
  return std::max<int64_t>(joined, 1);
}

void SFTTrainer::note(const std::string& name, const Tensor& value, bool training) {
  auto& mean = means_[size_t(training)][name];
  mean.sum = mean.sum.defined() ? mean.sum + value : value;
  ++mean.count;
}

Loss SFTTrainer::compute_loss(Model& model, Batch inputs, std::optional<Tensor> num_items) {
  const bool training = model.is_training();
  auto given = inputs;
  const auto labels = given.pop("labels");
  Loss result;
  result.outputs = run_model(model, given, training);
  const auto all = result.outputs["logits"];
  const auto logits = all.narrow(1, 0, all.size(1) - 1);
  const auto targets = labels.narrow(1, 1, labels.size(1) - 1);
  const auto mask = targets.ne(-100);
  const auto places = targets.clamp_min(0).unsqueeze(-1);
  const auto count = mask.sum();
  const auto logs = logits.to(torch::kFloat).log_softmax(-1);
  const auto log_probs = logs.gather(-1, places).squeeze(-1).masked_fill(~mask, 0);
  if (has_loss_function_ || (args().label_smoothing_factor != 0 && args_.loss_type == "nll")) {
    result.loss = has_loss_function_ ? Trainer::compute_loss(model, inputs, num_items).loss
                                     : LabelSmoother(args().label_smoothing_factor)(
                                           result.outputs, labels,
                                           /*shift_labels=*/true, num_items);
  } else {
    auto losses = -log_probs;
    if (args_.loss_type == "dft") losses = losses * log_probs.detach().exp();
    const auto items = num_items && training ? num_items->to(losses.device()) : count;
    result.loss = losses.sum() / items.clamp_min(1);
  }
  const torch::NoGradGuard no_grad;
  const auto seen = count.clamp_min(1);
  const auto entropy = (logs.exp() * logs).sum(-1).neg().masked_fill(~mask, 0).sum();
  const auto correct = logs.argmax(-1).eq(targets).logical_and(mask).sum();
  note("entropy", entropy / seen, training);
  note("mean_token_accuracy", correct / seen, training);
  if (training) {
    const auto* padding = inputs.find("attention_mask");
    const auto tokens = padding != nullptr
                            ? padding->sum()
                            : torch::full({}, inputs["input_ids"].size(1), labels.options());
    if (!train_tokens_.defined()) train_tokens_ = logged_tokens(state(), labels.options());
    train_tokens_ = train_tokens_ + tokens;
  }
  return result;
}

void SFTTrainer::log(Logs logs, std::optional<double> start_time) {
  const bool training = model().is_training();
  const std::string prefix = training ? "" : "eval_";
  auto& means = means_[size_t(training)];
  for (const auto& [name, mean] : means)
    logs[prefix + name] = mean.sum.item<double>() / double(mean.count);
  if (!means.empty())
    logs[prefix + "num_tokens"] = train_tokens_.defined() ? train_tokens_.item<double>() : 0.0;
  means.clear();
  Trainer::log(std::move(logs), start_time);
}

nlohmann::ordered_json SFTTrainer::arguments_to_save() const {
  auto all = args_.to_dict();
  const auto common = Trainer::arguments_to_save();  // may have changed since
  for (const auto& [name, value] : common.items()) all[name] = value;
  return all;
}

}  // namespace gradus
