#include <gradus/data/collators.h>
#include <gradus/device/runtime.h>
#include <gradus/trainers/sft.h>

#include <algorithm>

#include "train/label_smoother.h"
#include "trainers/metric_log.h"
#include "trainers/sft_data.h"
#include "trainers/token_scores.h"
#include "trainers/trl_options.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr std::string_view kTruncationModes[] = {"keep_start", "keep_end"};
constexpr std::string_view kPackingStrategies[] = {"bfd", "bfd_split", "wrapped", "bfd-requeue"};
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
     "bfd: best fit, cuts what is too long; bfd_split: splits it (bfd-requeue is its old name); "
     "wrapped: joins and cuts."},
    {&SFTConfig::padding_free, "padding_free", Group::trainer, any_value(),
     "A batch is one row without padding; always so with packing by bfd and bfd_split."},
    {&SFTConfig::pad_to_multiple_of, "pad_to_multiple_of", Group::trainer,
     at_least(1).unset_by("auto"), "Round the padded length up to a multiple."},
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

bool skips_preparation(const SFTConfig& args) {
  return args.dataset_kwargs.is_object() &&
         args.dataset_kwargs.value("skip_prepare_dataset", false);
}

bool is_padding_free(const SFTConfig& args) {
  return args.padding_free || (args.packing && args.packing_strategy != "wrapped");
}

void check_sft_args(const SFTConfig& args, bool has_collator) {
  if (is_padding_free(args) && has_collator)
    refuse_options("a data collator of one's own cannot be used without padding",
                   "Turn padding_free and packing off, or leave the collator out.");
  if (args.padding_free && !args.packing && args.max_length)
    refuse_options("padding_free without packing does not keep max_length",
                   "Turn packing on, or unset max_length.");
  if (args.router_aux_loss_coef.value_or(0) != 0)
    refuse_options("router_aux_loss_coef is for mixtures of experts", "Leave it out.");
}

/// Masks become labels in the preparation, without which all tokens would count.
void check_labels(const DatasetRef& rows, const std::string& name) {
  const auto columns = rows.column_names();
  const auto has = [&](const char* column) {
    return std::ranges::find(columns, column) != columns.end();
  };
  if (has("labels") || !(has("completion_mask") || has("assistant_masks"))) return;
  refuse_options(name +
                     " has masks but no labels, and skip_prepare_dataset leaves it as it is, so "
                     "that all tokens would count",
                 "Give labels, with -100 for tokens that do not count, or leave "
                 "skip_prepare_dataset out.");
}

constexpr const char* kNumTokens = "num_tokens";  ///< Of a batch, without what fills it up.
constexpr int64_t kTokensOfShapes = 512, kSequencesOfShapes = 16;

int64_t rounded_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/// A batch without padding, filled up with one more sequence that does not count, and with empty
/// sequences, so that few shapes have to be recorded.
Batch filled_up(Batch inputs, int64_t pad_token_id) {
  const auto tokens = inputs["input_ids"].size(1);
  const auto more = rounded_up(tokens, kTokensOfShapes) - tokens;
  const auto fill = [&](const char* name, int64_t value) {
    inputs.set(name, torch::constant_pad_nd(inputs[name], {0, more}, value));
  };
  inputs.set(kNumTokens, torch::full({}, tokens, torch::kLong));
  const auto bounds = inputs["cu_seq_lens_q"];
  const auto sequences = bounds.numel() - 1 + (more > 0 ? 1 : 0);
  const auto missing = rounded_up(sequences, kSequencesOfShapes) + 1 - bounds.numel();
  fill("seq_idx", bounds.numel() - 1);
  fill("input_ids", pad_token_id);
  fill("labels", -100);
  fill("position_ids", 0);
  const auto filled = torch::constant_pad_nd(bounds, {0, missing}, tokens + more);
  inputs.set("cu_seq_lens_q", filled);
  inputs.set("cu_seq_lens_k", filled);
  return inputs;
}

}  // namespace

std::span<const OptionRow<SFTConfig>> SFTConfig::own_options() { return kSftRows; }

nlohmann::ordered_json SFTConfig::to_dict() const { return arguments_to_dict(*this); }

SFTConfig SFTConfig::from_json(const nlohmann::json& dict) {
  return arguments_from_json<SFTConfig>(dict);
}

bool operator==(const SFTConfig&, const SFTConfig&) = default;

SFTConfig::operator TrainingArguments() const { return plain_arguments(*this); }

SFTConfig SFTConfig::resolved() const {
  auto args = with_trl_rules(*this);
  if (args.loss_type == "chunked_nll") args.loss_type = "nll";
  if (args.packing_strategy == "bfd-requeue") args.packing_strategy = "bfd_split";
  return resolve_fields(args);
}

/// What the constructor has made of its options.
struct SFTTrainer::Prepared {
  TrainerOptions options;
  PrepareRows prepare_rows = nullptr;
  bool has_loss_function = false;
  int64_t pad_token_id = 0;
};

SFTTrainer::Prepared SFTTrainer::prepare(SFTTrainerOptions given, const SFTConfig& args) {
  check_sft_args(args, bool(given.data_collator));
  Prepared prepared;
  auto& options = prepared.options = plain_options(given, args, "SFTTrainer");
  const auto tokenizer =
      trl_tokenizer(given.processing_class,
                    {args.eos_token, args.pad_token, args.chat_template_path}, "SFTTrainer");
  device::seed_all(args.seed);  // the adapter's matrices are random
  options.model = policy_to_train(given.model, given.peft_config, "SFTTrainer");
  options.processing_class = tokenizer;
  prepared.pad_token_id = *tokenizer->pad_token_id();
  const bool own_collator = bool(options.data_collator);
  if (!own_collator)
    options.data_collator = DataCollatorForSft({.pad_token_id = prepared.pad_token_id,
                                                .padding_free = is_padding_free(args),
                                                .pad_to_multiple_of = args.pad_to_multiple_of});

  const auto& rows = given.train_dataset.map_style();
  const auto sample = rows && rows->size() > 0 ? rows->get(0) : Example();
  refuse_images(sample, "SFTTrainer", "train_dataset");
  const SftPreparation how{.tokenizer = tokenizer,
                           .args = args,
                           .completion_only = args.completion_only_loss.value_or(
                               sample.contains("prompt") && sample.contains("completion")),
                           .longest = longest_input(*options.model),
                           .vocabulary = known_tokens(*options.model),
                           .formatting_func = given.formatting_func};
  if (args.assistant_only_loss && !is_conversational(sample) && !sample.contains("input_ids"))
    refuse_options("assistant_only_loss is set, but the data are not conversations",
                   "Give messages, or leave assistant_only_loss out.");
  if (how.completion_only && how.formatting_func)
    refuse_options(
        "formatting_func makes one text of a row, so completion_only_loss cannot find the "
        "completion",
        "Leave one of them out.");
  prepared.prepare_rows = [how, own_collator](const DatasetRef& set, const std::string& name) {
    const auto& args = how.args;
    if (skips_preparation(args)) {
      if (!own_collator) check_labels(set, name);
      return set;
    }
    const bool packs =
        name == "train_dataset" ? args.packing : args.eval_packing.value_or(args.packing);
    if (packs && !args.max_length)
      refuse_options("packing needs max_length, the length of the packed rows",
                     "Set --max_length.");
    return DatasetRef(prepare_sft_rows(set, how, packs, name));
  };
  prepare_sets(options, "SFTTrainer", prepared.prepare_rows);
  prepared.has_loss_function = bool(options.compute_loss_func);
  return prepared;
}

SFTTrainer::SFTTrainer(SFTTrainerOptions options)
    : SFTTrainer(options.args.resolved(), prepare(options, options.args.resolved())) {}

SFTTrainer::SFTTrainer(SFTConfig args, Prepared prepared)
    : TrlTrainer(prepared.options, args.to_dict()),
      args_(std::move(args)),
      has_loss_function_(prepared.has_loss_function),
      pad_token_id_(prepared.pad_token_id) {
  set_prepare_rows(std::move(prepared.prepare_rows));
}

DataLoaderOptions SFTTrainer::eval_dataloader_options(const DatasetRef& eval_dataset) {
  eval_rows_left_ = eval_dataset.size().value_or(0);
  return TrlTrainer::eval_dataloader_options(eval_dataset);
}

int64_t SFTTrainer::rows_of_loss(int64_t rows) const {
  if (rows == 0 || !is_padding_free(args_)) return rows;
  const auto joined = std::min(args().eval_batch_size(), eval_rows_left_);
  eval_rows_left_ -= joined;
  return std::max<int64_t>(joined, 1);
}

StepTraits SFTTrainer::step_traits() const {
  if (!is_exactly<SFTTrainer>()) return {};
  return {.recordable = !processes(), .reads_logits = false};  // metrics of several are exchanged
}

Batch SFTTrainer::batch_for_gpu(Batch inputs) const {
  inputs = TrlTrainer::batch_for_gpu(std::move(inputs));
  const bool is_flat = inputs.contains("cu_seq_lens_q") && inputs.contains("position_ids") &&
                       inputs.contains("seq_idx") && inputs["input_ids"].is_cpu();
  return is_flat && model().is_training() ? filled_up(std::move(inputs), pad_token_id_) : inputs;
}

Loss SFTTrainer::compute_loss(Model& model, Batch inputs, std::optional<Tensor> num_items) {
  const bool training = model.is_training();
  if (!training) num_items.reset();  // an evaluation divides each batch by its own labels
  auto given = inputs;
  const auto labels = given.pop("labels");
  const auto tokens = given.pop_or_undefined(kNumTokens);
  const bool smooths = args().label_smoothing_factor != 0 && args_.loss_type == "nll";
  Loss result;
  auto& asked = forward_options();
  asked.need_logits |= has_loss_function_ || smooths;
  if (training && !asked.need_logits) {
    const auto items = num_items ? num_items->to(labels.device())
                                 : labels.narrow(1, 1, labels.size(1) - 1).ne(-100).sum();
    asked.token_scoring =
        TokenScoring{.labels = labels,
                     .loss_scale = items.clamp_min(1).to(torch::kFloat).reciprocal(),
                     .weights_by_prob = args_.loss_type == "dft"};
  }
  const auto scores =
      score_by_model(model, given, labels, {.entropy = true, .is_top1 = true}, result.outputs);
  const auto count = scores.mask.sum();
  if (result.outputs.contains("loss")) {
    result.loss = result.outputs["loss"];
  } else if (has_loss_function_) {
    result.loss = Trainer::compute_loss(model, inputs, num_items).loss;
  } else if (smooths) {
    result.loss = LabelSmoother(args().label_smoothing_factor)(result.outputs, labels,
                                                               /*shift_labels=*/true, num_items);
  } else {
    auto losses = -scores.log_probs;
    if (args_.loss_type == "dft") losses = losses * scores.log_probs.detach().exp();
    const auto items = num_items ? num_items->to(losses.device()) : count;
    result.loss = losses.sum() / items.clamp_min(1);
  }
  // The gradients become the mean over the processes, but the items are those of all of them.
  if (num_items && !has_loss_function_ && args().average_tokens_across_devices)
    result.loss = result.loss * world_size();
  MetricBatch metrics;
  metrics.mean("entropy", scores.entropy.sum(), count);
  metrics.mean("mean_token_accuracy", scores.is_top1.sum(), count);
  const auto* padding = inputs.find("attention_mask");
  metrics.tokens(tokens.defined() ? tokens
                 : padding != nullptr
                     ? padding->sum()
                     : torch::full({}, inputs["input_ids"].size(1), labels.options()));
  note(metrics, training);
  return result;
}

}  // namespace gradus
