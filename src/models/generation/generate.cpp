#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/models/config_reader.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/ones_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/generation/decoding_loop.h"
#include "models/generation/recorded_decoding.h"
#include "models/generation/recorded_sampling.h"
#include "models/generation/top_continuations.h"
#include "models/layers/turned_weights.h"

namespace gradus {

using torch::Tensor;

namespace {

constexpr int64_t kDefaultNewTokens = 20;

[[noreturn]] void refuse(const std::string& message, const std::string& advice) {
  throw Error("G-GEN-2", ErrorKind::usage, "generate: " + message, advice);
}

/// Puts the model into evaluation mode and back.
class EvalMode {
 public:
  explicit EvalMode(torch::nn::Module& module)
      : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  ~EvalMode() { module_.train(was_training_); }

 private:
  torch::nn::Module& module_;
  bool was_training_;
};

/// 1 for text, 0 for padding: inferred from the pad token where that is unambiguous, as
/// transformers does.
Tensor inferred_mask(const Tensor& ids, const GenerationOptions& options,
                     std::optional<int64_t> pad) {
  const auto everything = at::ones_like(ids);
  if (!pad) return everything;
  const auto ends = options.eos_token_id ? options.eos_token_id->ids() : std::vector<int64_t>{};
  if (std::find(ends.begin(), ends.end(), *pad) != ends.end()) return everything;
  return ids.eq(*pad).any().item<bool>() ? ids.ne(*pad).to(torch::kLong) : everything;
}

std::optional<int64_t> pad_of(const GenerationOptions& options) {
  if (options.pad_token_id) return options.pad_token_id;
  if (options.eos_token_id && !options.eos_token_id->ids().empty())
    return options.eos_token_id->ids().front();
  return std::nullopt;
}

/// Lengths that cannot be met together are no error, as in transformers.
void warn_of_lengths(const GenerationOptions& options, int64_t prompt, int64_t limit) {
  if (options.min_new_tokens && *options.min_length > 0)
    log_warning(fmt::format(
        "Both min_new_tokens (={}) and min_length (={}) are set; min_new_tokens is used.",
        *options.min_new_tokens, *options.min_length));
  const auto shortest =
      options.min_new_tokens ? prompt + *options.min_new_tokens : *options.min_length;
  if (shortest > limit)
    log_warning(
        fmt::format("Unfeasible length constraints: at least {} tokens are requested, but at most "
                    "{} are possible. Generation stops at the maximum.",
                    shortest, limit));
}

/// Options of the folder that make other text and that we cannot follow.
void refuse_unread(const nlohmann::json& other) {
  for (const auto* name :
       {"guidance_scale", "penalty_alpha", "num_beam_groups", "diversity_penalty", "constraints",
        "force_words_ids", "watermarking_config", "dola_layers", "token_healing"}) {
    const auto found = other.find(name);
    const bool set =
        found != other.end() && !found->is_null() && *found != false && *found != 0 && *found != 1;
    if (set)
      refuse(fmt::format(
                 "the model's generation_config.json sets {} to {}, which cannot be followed here",
                 name, dump_json(*found)),
             "Remove it from generation_config.json to generate without it.");
  }
}

int64_t length_limit(const GenerationOptions& options, const nlohmann::json& config,
                     const char* what, int64_t prompt) {
  if (options.max_new_tokens) {
    if (options.max_length)
      log_warning(fmt::format(
          "Both max_new_tokens (={}) and max_length (={}) are set; max_new_tokens is used.",
          *options.max_new_tokens, *options.max_length));
    return prompt + *options.max_new_tokens;
  }
  if (options.max_length) {
    if (prompt >= *options.max_length)
      refuse(
          fmt::format("{} has {} tokens, but max_length is {}", what, prompt, *options.max_length),
          "Raise max_length, or set max_new_tokens instead.");
    return *options.max_length;
  }
  log_warning_once(
      "Using the default of 20 new tokens. Set max_new_tokens to control the length of what is "
      "generated.");
  const ConfigReader read(config, "config.json", {{"max_position_embeddings", "n_positions"}});
  const auto limit = prompt + kDefaultNewTokens;
  const auto positions = read.optional_integer("max_position_embeddings");
  const auto capped = positions ? std::min(limit, *positions) : limit;
  if (prompt >= capped)
    refuse(fmt::format("{} has {} tokens, the model {} positions", what, prompt, *positions),
           "Shorten the prompt.");
  return capped;
}

/// Tokens of a row, at most, with the model's positions. The last token needs none: it is not read
/// any more.
std::optional<int64_t> longest_row(const PreTrainedModel& model, const Decoder& decoder) {
  const auto positions = model.position_limit();
  const auto used = decoder.last_position() + 1;
  if (!positions || used == 0) return std::nullopt;
  if (used > *positions)
    refuse(
        fmt::format("the prompt has {} tokens, but the model has {} positions", used, *positions),
        "Shorten the prompt, or use a model with more positions.");
  return decoder.prompt().size(1) + *positions - used + 1;
}

void warn_of_positions(const PreTrainedModel& model, const GenerationOptions& options,
                       int64_t new_tokens) {
  const auto asked = options.max_new_tokens
                         ? fmt::format("max_new_tokens (={})", *options.max_new_tokens)
                         : fmt::format("max_length (={})", options.max_length.value_or(0));
  log_warning(fmt::format(
      "Generation stopped after {} new tokens, where the model's {} positions end; {} asks for "
      "more. Lower it, shorten the prompt, or use a model with more positions.",
      new_tokens, *model.position_limit(), asked));
}

/// The encoder's output must be that of the prompts.
void check_states(const Tensor& states, const Tensor& ids) {
  if (states.dim() != 3 || states.size(0) != ids.size(0) || states.size(1) != ids.size(1))
    refuse(fmt::format("encoder_hidden_states have shape [{}], input_ids [{}]",
                       fmt::join(states.sizes(), ", "), fmt::join(ids.sizes(), ", ")),
           "Give one vector per token, or leave them out.");
}

Tensor repeated(const Tensor& rows, int64_t copies) {
  return copies == 1 ? rows : rows.repeat_interleave(copies, 0);
}

}  // namespace

Decoder::Decoder(PreTrainedModel& model, const Batch& inputs, const GenerationOptions& options,
                 int64_t copies)
    : model_(model), use_cache_(*options.use_cache) {
  prepare_prompt(inputs, options);
  if (model.is_encoder_decoder()) {
    Batch encoder;
    for (const auto& [name, tensor] : inputs)
      if (name.rfind("decoder_", 0) != 0 && name != "labels")
        encoder.set(name, tensor.to(model.device()));
    if (!encoder.contains("attention_mask")) encoder.set("attention_mask", attention_mask_);
    // One row for all copies of a prompt, also the mask.
    const auto* given = encoder.find("encoder_hidden_states");
    encoder_states_ = given != nullptr ? *given : model.encode(encoder);
    check_states(encoder_states_, given_ids_);
  } else {
    attention_mask_ = repeated(attention_mask_, copies);
  }
  if (positions_.defined()) positions_ = repeated(positions_, copies);
  if (types_.defined()) types_ = repeated(types_, copies);
  if (decoder_mask_.defined()) decoder_mask_ = repeated(decoder_mask_, copies);
  prompt_ = repeated(prompt_, copies);
}

Decoder::~Decoder() = default;

void Decoder::record_steps(int64_t max_length) {
  const auto positions = model_.position_limit();
  const auto recorder = generation_recorder(prompt_.device(), max_length - prompt_.size(1));
  if (recorder && is_recordable() && (!positions || max_length <= *positions + 1))
    recorded_ = std::make_unique<RecordedDecoding>(*this, recorder, max_length);
}

void Decoder::prepare_prompt(const Batch& inputs, const GenerationOptions& options) {
  const auto device = model_.device();
  const auto* given = inputs.find("input_ids");
  if (given == nullptr && inputs.contains("inputs_embeds"))
    refuse("the batch holds inputs_embeds, but text can only be continued from token ids",
           "Give input_ids.");
  if (given == nullptr && (model_.is_encoder_decoder() || !options.bos_token_id))
    refuse(fmt::format("the batch holds no input_ids ({})",
                       inputs.empty() ? "it is empty"
                                      : fmt::format("only {}", fmt::join(inputs.names(), ", "))),
           "Give a prompt, or set bos_token_id to start from it.");
  auto ids = given != nullptr
                 ? given->to(device)
                 : torch::full({1, 1}, *options.bos_token_id,
                               torch::TensorOptions().dtype(torch::kLong).device(device));
  if (ids.dim() == 1) ids = ids.unsqueeze(0);
  if (ids.dim() != 2 || ids.numel() == 0 || ids.is_floating_point())
    refuse(fmt::format("input_ids have shape [{}], expected integers [rows, tokens]",
                       fmt::join(ids.sizes(), ", ")),
           "Give one or more token ids per row.");
  ids = ids.to(torch::kLong);
  const auto* mask = inputs.find("attention_mask");
  attention_mask_ =
      mask != nullptr ? (mask->dim() == 1 ? mask->unsqueeze(0) : *mask).to(device).to(torch::kLong)
      : model_.is_encoder_decoder() ? at::ones_like(ids)
                                    : inferred_mask(ids, options, pad_of(options));
  if (attention_mask_.sizes() != ids.sizes())
    refuse(fmt::format("attention_mask has shape [{}], input_ids [{}]",
                       fmt::join(attention_mask_.sizes(), ", "), fmt::join(ids.sizes(), ", ")),
           "Both must have one entry per token.");
  given_ids_ = ids;
  if (model_.is_encoder_decoder()) return prepare_start(inputs, options);
  const auto pad = pad_of(options);
  const auto last = ids.size(1) - 1;
  if (pad && ids.size(0) > 1 &&
      (mask != nullptr ? attention_mask_.select(1, last).eq(0) : ids.select(1, last).eq(*pad))
          .any()
          .item<bool>())
    log_warning_once(
        "A decoder-only architecture is being used, but right-padding was detected. For correct "
        "generation, pad on the left.");
  prompt_ = ids;
  prepare_positions(inputs);
}

/// Given ones, or the number of text tokens before each; 0 for padding.
void Decoder::prepare_positions(const Batch& inputs) {
  const auto given = [&](const char* name) {
    const auto* found = inputs.find(name);
    if (found == nullptr) return Tensor();
    const auto rows =
        (found->dim() == 1 ? found->unsqueeze(0) : *found).to(model_.device()).to(torch::kLong);
    if (rows.dim() != 2 || rows.size(1) != prompt_.size(1) ||
        (rows.size(0) != 1 && rows.size(0) != prompt_.size(0)))
      refuse(fmt::format("{} have shape [{}], input_ids [{}]", name, fmt::join(rows.sizes(), ", "),
                         fmt::join(prompt_.sizes(), ", ")),
             "Both must have one entry per token.");
    return rows.expand(prompt_.sizes());
  };
  types_ = given("token_type_ids");
  positions_ = given("position_ids");
  if (!positions_.defined())
    positions_ = (attention_mask_.cumsum(1) - 1).masked_fill_(attention_mask_.eq(0), 0);
}

/// The start token, or the given decoder_input_ids with it in front where it is missing.
void Decoder::prepare_start(const Batch& inputs, const GenerationOptions& options) {
  const auto rows = given_ids_.size(0);
  const auto start = options.decoder_start_token_id ? options.decoder_start_token_id->ids()
                     : options.bos_token_id         ? std::vector<int64_t>{*options.bos_token_id}
                                                    : std::vector<int64_t>{};
  if (start.empty() || (start.size() != 1 && static_cast<int64_t>(start.size()) != rows))
    refuse(fmt::format("decoder_start_token_id (or bos_token_id) is needed, one or one for each of "
                       "{} rows; received {}",
                       rows, start.empty() ? "none" : std::to_string(start.size())),
           "Set it in generation_config.json or in the options.");
  prompt_ = torch::tensor(start, torch::TensorOptions().dtype(torch::kLong).device(model_.device()))
                .view({-1, 1})
                .expand({rows, 1})
                .contiguous();
  if (const auto* mask = inputs.find("decoder_attention_mask"))
    decoder_mask_ = mask->to(model_.device()).to(torch::kLong);
  const auto* given = inputs.find("decoder_input_ids");
  if (given == nullptr) return;
  auto ids =
      (given->dim() == 1 ? given->unsqueeze(0) : *given).to(model_.device()).to(torch::kLong);
  if (ids.dim() != 2 || ids.size(0) != rows || ids.size(1) == 0)
    refuse(fmt::format("decoder_input_ids have shape [{}], expected [{}, tokens]",
                       fmt::join(given->sizes(), ", "), rows),
           "Give one row for each of input_ids.");
  if (ids.narrow(1, 0, 1).ne(prompt_).all().item<bool>()) {
    ids = at::cat({prompt_, ids}, 1);
    if (decoder_mask_.defined()) decoder_mask_ = torch::constant_pad_nd(decoder_mask_, {1, 0}, 1);
  }
  prompt_ = ids;
}

int64_t Decoder::last_position() const {
  return positions_.defined() ? positions_.max().item<int64_t>() : -1;
}

Tensor Decoder::next_logits(const Tensor& ids) {
  if (!use_cache_) cache_ = {};
  if (recorded_ && cache_.length() > 0)
    return recorded_->next_logits(ids.narrow(1, ids.size(1) - 1, 1));
  const auto seen = cache_.length(), fresh = ids.size(1) - seen;
  const auto tokens = ids.narrow(1, seen, fresh);
  Batch inputs;
  if (model_.is_encoder_decoder()) {
    inputs.set("decoder_input_ids", tokens);
    inputs.set("encoder_hidden_states", encoder_states_);
    inputs.set("attention_mask", attention_mask_);
    if (decoder_mask_.defined()) {
      decoder_mask_ =
          torch::constant_pad_nd(decoder_mask_, {0, ids.size(1) - decoder_mask_.size(1)}, 1);
      inputs.set("decoder_attention_mask", decoder_mask_);
    }
  } else {
    if (attention_mask_.size(1) < ids.size(1))
      attention_mask_ =
          torch::constant_pad_nd(attention_mask_, {0, ids.size(1) - attention_mask_.size(1)}, 1);
    while (positions_.size(1) < ids.size(1))
      positions_ = at::cat({positions_, positions_.narrow(1, positions_.size(1) - 1, 1) + 1}, 1);
    while (types_.defined() && types_.size(1) < ids.size(1))
      types_ = at::cat({types_, types_.narrow(1, types_.size(1) - 1, 1)}, 1);
    inputs.set("input_ids", tokens);
    inputs.set("attention_mask", attention_mask_);
    inputs.set("position_ids", positions_.narrow(1, seen, fresh));
    if (types_.defined()) inputs.set("token_type_ids", types_.narrow(1, seen, fresh));
  }
  return model_.decode(inputs, cache_).to(torch::kFloat);
}

// Beams of a prompt share mask and encoder output, and rows never leave their prompt: both stay as
// they are.
void Decoder::select_rows(const Tensor& rows) {
  if (recorded_)
    recorded_->select_rows(rows);
  else
    cache_.select_rows(rows);
}

void Decoder::keep_rows(const Tensor& rows, const Tensor& prompts) {
  if (recorded_)
    recorded_->keep_rows(rows);
  else
    cache_.select_rows(rows);
  cache_.select_cross(prompts);
  attention_mask_ = attention_mask_.index_select(0, encoder_states_.defined() ? prompts : rows);
  if (encoder_states_.defined()) encoder_states_ = encoder_states_.index_select(0, prompts);
  for (auto* each : {&positions_, &types_, &decoder_mask_})
    if (each->defined()) *each = each->index_select(0, rows);
}

void Decoder::keep_rows_alone(const Tensor& rows, int64_t count) {
  // Each row gets an encoder output of its own, since a prompt may lose some of its copies.
  const auto copies = encoder_states_.defined() ? count / encoder_states_.size(0) : 1;
  keep_rows(rows, copies == 1 ? rows : rows.div(copies, "floor"));
}

StopRules::StopRules(const GenerationOptions& options, int64_t max_length)
    : options_(options), max_length_(max_length) {
  if (options.eos_token_id) ends_ = options.eos_token_id->ids();
  if (options.max_time)
    deadline_ =
        std::chrono::steady_clock::now() +
        std::chrono::microseconds(static_cast<int64_t>(std::min(*options.max_time, 1e9) * 1e6));
}

bool StopRules::ends_in_text(const std::vector<int64_t>& row) const {
  if (!options_.stop_strings || options_.stop_strings->empty()) return false;
  const auto text = options_.decode(row);
  const auto before = options_.decode({row.begin(), row.end() - 1}).size();
  return std::any_of(options_.stop_strings->begin(), options_.stop_strings->end(),
                     [&](const auto& stop) {
                       const auto from = before >= stop.size() ? before - stop.size() + 1 : 0;
                       return !stop.empty() && text.find(stop, from) != std::string::npos;
                     });
}

bool StopRules::reads_rows() const {
  return !options_.stopping_criteria.empty() ||
         (options_.stop_strings && !options_.stop_strings->empty());
}

bool StopRules::ends_by_row(const std::vector<int64_t>& row) const {
  return ends_in_text(row) ||
         std::any_of(options_.stopping_criteria.begin(), options_.stopping_criteria.end(),
                     [&](const auto& criterion) { return criterion(row); });
}

bool StopRules::ends_with(const std::vector<int64_t>& row, int64_t token) const {
  if (std::find(ends_.begin(), ends_.end(), token) != ends_.end()) return true;
  if (!reads_rows()) return false;
  auto extended = row;
  extended.push_back(token);
  return ends_by_row(extended);
}

Tensor StopRules::finished(const Tensor& ids) const {
  const auto last = ids.select(1, ids.size(1) - 1);
  auto finished = torch::full({ids.size(0)}, is_over(ids.size(1)),
                              torch::TensorOptions().dtype(torch::kBool).device(ids.device()));
  for (const auto end : ends_) finished.logical_or_(last.eq(end));
  if (!reads_rows()) return finished;
  const auto here = ids.to(torch::kCPU).contiguous();
  for (int64_t i = 0; i < here.size(0); ++i) {
    const auto* first = here.const_data_ptr<int64_t>() + i * here.size(1);
    if (ends_by_row({first, first + here.size(1)})) finished[i] = true;
  }
  return finished;
}

Tensor DecodingPlan::process(const Tensor& ids, Tensor scores) const {
  for (const auto& processor : processors) scores = processor(ids, std::move(scores));
  return scores;
}

bool DecodingPlan::may_leave_out_rows() const {
  return stop.has_end_tokens() && options.logits_processors.empty() &&
         options.stopping_criteria.empty() && !options.streamer && !options.max_time &&
         options.encoder_repetition_penalty.value_or(1.0) == 1.0 &&
         options.encoder_no_repeat_ngram_size.value_or(0) == 0;
}

/// Hands new tokens of the one row to the streamer.
static void stream(const GenerationOptions& options, const Tensor& tokens) {
  if (!options.streamer) return;
  const auto here = tokens.to(torch::kCPU).contiguous();
  options.streamer({here.const_data_ptr<int64_t>(), static_cast<size_t>(here.numel())});
}

/// The rows that the decoder goes on with. Finished ones are left out once they are a quarter of
/// all. `rows` are those it has, undefined for all; `open` says which of all are not finished.
static Tensor without_finished(Decoder& decoder, const Tensor& open, const Tensor& rows) {
  const auto left = (rows.defined() ? open.index_select(0, rows) : open).nonzero().squeeze(1);
  const auto count = rows.defined() ? rows.size(0) : open.size(0);
  if (left.size(0) == 0 || left.size(0) * 4 > count * 3) return rows;
  decoder.keep_rows_alone(left, count);
  return rows.defined() ? rows.index_select(0, left) : left;
}

/// The next token of each of `all` rows. `scores` are those of `rows`; the others get `pad`.
static Tensor next_tokens(const Tensor& scores, const Tensor& rows, int64_t all, int64_t pad,
                          bool is_drawn) {
  const auto next =
      is_drawn ? drawn_places(scores.softmax(-1), rows, all, 1).squeeze(1) : scores.argmax(-1);
  return rows.defined() ? torch::full({all}, pad, next.options()).index_copy_(0, rows, next) : next;
}

Tensor sample(Decoder& decoder, const DecodingPlan& plan) {
  auto ids = decoder.prompt();
  stream(plan.options, ids);
  auto open =
      torch::ones({ids.size(0)}, torch::TensorOptions().dtype(torch::kBool).device(ids.device()));
  const auto pad = plan.pad_token.value_or(0);
  Tensor rows;  // those that the decoder has, undefined for all
  while (open.any().item<bool>()) {
    const auto seen = rows.defined() ? ids.index_select(0, rows) : ids;
    const auto scores = plan.process(seen, decoder.next_logits(seen));
    auto next = next_tokens(scores, rows, ids.size(0), pad, *plan.options.do_sample);
    if (plan.stop.has_end_tokens()) next.masked_fill_(open.logical_not(), pad);
    ids = at::cat({ids, next.unsqueeze(1)}, 1);
    stream(plan.options, next);
    open = open.logical_and(plan.stop.finished(ids).logical_not());
    if (plan.may_leave_out_rows()) rows = without_finished(decoder, open, rows);
  }
  return ids;
}

Tensor PreTrainedModel::generate(const Batch& inputs, const GenerationOptions& given) {
  if (!can_generate())
    throw Error("G-GEN-3", ErrorKind::model,
                fmt::format("{} cannot generate: it has no language modeling head", class_name_),
                "Load the folder with AutoModelForCausalLM or AutoModelForSeq2SeqLM.");
  const auto options = complete_options(given, generation_config.options);
  torch::NoGradGuard no_grad;
  const EvalMode mode(*this);
  const layers::TurnedWeights turned;
  const auto beams = *options.num_beams;
  Decoder decoder(*this, inputs, options, std::max(beams, *options.num_return_sequences));
  const auto prompt = decoder.prompt().size(1);
  const auto longest = longest_row(*this, decoder);
  const auto asked = length_limit(
      options, config_, is_encoder_decoder() ? "the start of the decoder" : "the prompt", prompt);
  const auto limit = longest ? std::min(asked, *longest) : asked;
  warn_of_lengths(options, prompt, limit);
  refuse_unread(generation_config.other);
  if (options.streamer && decoder.prompt().size(0) != 1)
    refuse(fmt::format("a streamer takes one row, received {}", decoder.prompt().size(0)),
           "Give the prompts one by one, or leave the streamer out.");
  const DecodingPlan plan{options, limit, pad_of(options),
                          make_logits_processors(options, {prompt, limit, decoder.given_ids()}),
                          StopRules(options, limit)};
  auto recorded = beams > 1 ? std::nullopt : sample_recorded(decoder, plan);
  if (!recorded) decoder.record_steps(limit);
  const auto made = recorded    ? std::move(*recorded)
                    : beams > 1 ? beam_search(decoder, plan)
                                : sample(decoder, plan);
  if (limit < asked && made.size(1) >= limit) warn_of_positions(*this, options, limit - prompt);
  return made;
}

}  // namespace gradus
