#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/tasks/memory_plan.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace gradus {
namespace {

using nlohmann::json;

// What one block keeps for its backward pass: numbers per token. The narrow ones are in the
// precision of the run, the wide ones are in float32 under autocast.
struct BlockShape {
  int64_t layers = 0;
  double hidden = 0;  // of the stream between blocks
  double narrow = 0, wide = 0;
  double backward = 0;        // gradients that its backward pass holds at once
  double narrow_source = 0;   // per token of the source, in a decoder
  bool reads_target = false;  // a decoder: its tokens are those of the target
};

struct ModelShape {
  std::vector<BlockShape> blocks;
  double vocabulary = 0;  // of a language model's loss; 0 without one
  double hidden = 0;
  double bias_heads = 0;  // of a learned bias for every query and key; 0 without one
};

double number(const json& config, std::initializer_list<const char*> names, double otherwise = 0) {
  for (const char* name : names)
    if (const auto found = config.find(name); found != config.end() && found->is_number())
      return found->get<double>();
  return otherwise;
}

bool is_one_of(const std::string& text, const std::set<std::string>& names) {
  return names.contains(text);
}

const std::set<std::string> kGptTypes = {"gpt2"};
const std::set<std::string> kLlamaTypes = {"llama", "mistral", "qwen2", "qwen3"};
const std::set<std::string> kBertTypes = {"bert", "roberta", "distilbert", "vit"};
const std::set<std::string> kT5Types = {"t5", "mt5"};

// Attention and feed-forward with their norms: the sum before each norm, the normed stream,
// queries, keys, values and their mean, and the feed-forward layer before and after its activation.
BlockShape dense_block(double hidden, double inner, int64_t layers) {
  return {.layers = layers,
          .hidden = hidden,
          .narrow = 4 * hidden + 2 * inner,
          .wide = 4 * hidden,
          .backward = inner + 2 * hidden};
}

// The norm is computed again in the backward pass, and so is the product of gate and up.
BlockShape llama_block(const json& config) {
  const double hidden = number(config, {"hidden_size"});
  const double heads = number(config, {"num_attention_heads"}, 1);
  const double head = number(config, {"head_dim"}, hidden / heads);
  const double kv = head * number(config, {"num_key_value_heads"}, heads);
  const double inner = number(config, {"intermediate_size"});
  const bool normed_heads = config.value("model_type", "") == "qwen3";
  return {.layers = int64_t(number(config, {"num_hidden_layers"})),
          .hidden = hidden,
          .narrow = 2 * heads * head + 2 * kv + 2 * inner + (normed_heads ? heads * head + kv : 0),
          .wide = 2 * hidden,
          .backward = 3 * inner + 2 * hidden};
}

std::vector<BlockShape> t5_blocks(const json& config) {
  const double hidden = number(config, {"d_model"});
  const double inner = number(config, {"d_kv"}) * number(config, {"num_heads"});
  const bool gated = config.value("feed_forward_proj", "relu").starts_with("gated");
  const double wide_layer = number(config, {"d_ff"});
  // The gradient of relu needs what comes out of it, which the next layer keeps anyway.
  const bool is_relu = config.value("feed_forward_proj", "relu") == "relu";
  const double feed = (gated ? 3 : is_relu ? 1 : 2) * wide_layer;
  const auto layers = int64_t(number(config, {"num_layers"}));
  const auto decoders = int64_t(number(config, {"num_decoder_layers"}, double(layers)));
  const double backward = wide_layer + 2 * hidden;
  const BlockShape encoder{.layers = layers,
                           .hidden = hidden,
                           .narrow = 4 * inner + feed,
                           .wide = 4 * hidden,
                           .backward = backward};
  const BlockShape decoder{.layers = decoders,
                           .hidden = hidden,
                           .narrow = 6 * inner + feed,
                           .wide = 6 * hidden,
                           .backward = backward,
                           .narrow_source = 2 * inner,
                           .reads_target = true};
  return {encoder, decoder};
}

std::optional<ModelShape> shape_of(const json& config) {
  if (!config.is_object()) return std::nullopt;
  const auto type = config.value("model_type", "");
  ModelShape shape;
  shape.hidden = number(config, {"hidden_size", "n_embd", "d_model", "dim"});
  shape.vocabulary = number(config, {"vocab_size"});
  const auto layers = int64_t(number(config, {"num_hidden_layers", "n_layer", "n_layers"}));
  if (is_one_of(type, kGptTypes)) {
    const double inner = number(config, {"n_inner"}, 4 * shape.hidden);
    shape.blocks = {dense_block(shape.hidden, inner, layers)};
  } else if (is_one_of(type, kBertTypes)) {
    const double inner = number(config, {"intermediate_size", "hidden_dim"}, 4 * shape.hidden);
    shape.blocks = {dense_block(shape.hidden, inner, layers)};
    const auto heads = config.value("architectures", json::array());
    const bool writes_words = std::any_of(heads.begin(), heads.end(), [](const json& head) {
      return head.is_string() && head.get<std::string>().ends_with("MaskedLM");
    });
    if (!writes_words) shape.vocabulary = 0;
  } else if (is_one_of(type, kLlamaTypes)) {
    shape.blocks = {llama_block(config)};
  } else if (is_one_of(type, kT5Types)) {
    shape.blocks = t5_blocks(config);
    shape.bias_heads = number(config, {"num_heads"});
  } else {
    return std::nullopt;
  }
  return shape;
}

// Chunks of the fused loss, as kernels/cross_entropy.cpp cuts them.
double chunk_rows(double rows, double vocabulary) {
  const double most = std::clamp(std::floor(double(int64_t{1} << 28) / vocabulary), 128.0, 4096.0);
  return std::min(rows, most);
}

double sequences_of(const PlannedStep& step) { return double(step.rows) * double(step.sequences); }

// What is kept for the backward pass: all of a block, or the input of one that is computed again.
struct KeptBytes {
  double at_loss = 0;  // by all blocks
  // Of the last block, with the gradients of its backward pass, where it is computed again; 0 where
  // it is kept.
  double last = 0;
  double first = 0;  // the same of the first one, where the backward pass ends
};

KeptBytes kept_bytes(const PlannedStep& step, const ModelShape& shape, double narrow, double wide) {
  KeptBytes kept;
  const double source = sequences_of(step) * double(step.tokens);
  // A learned bias is there once for all blocks, for every row where there is padding. Its gradient
  // is there twice: of the block at hand and of those before.
  const double bias = shape.bias_heads * source * double(step.tokens) * narrow;
  for (const auto& block : shape.blocks) {
    const double rows =
        block.reads_target ? sequences_of(step) * double(step.target_tokens) : source;
    const double one =
        (block.narrow * narrow + block.wide * wide) * rows + block.narrow_source * narrow * source;
    const auto& how = step.checkpointing;
    const double again = how ? double(how->recomputed(block.layers)) : 0;
    const double input = how && how->offload ? 0 : block.hidden * wide * rows;
    kept.at_loss += (double(block.layers) - again) * one + again * input;
    const double at_work = one + block.backward * narrow * rows;
    const auto is_again = [&](int64_t index) {
      return how && how->recomputes(index, block.layers);
    };
    kept.last = is_again(block.layers - 1) ? at_work : 0;
    if (&block == &shape.blocks.front() && is_again(0)) kept.first = at_work + 3 * bias;
  }
  kept.at_loss += bias;
  return kept;
}

// The loss of a language model: the logits of a chunk or of all tokens. The gradient of the head
// and that of the stream stay while the blocks' gradients are computed.
struct LossBytes {
  double logits = 0, gradients = 0;
};

LossBytes loss_bytes(const PlannedStep& step, const ModelShape& shape, double narrow) {
  if (shape.vocabulary <= 0) return {};
  const bool writes_target = shape.blocks.back().reads_target;
  const double rows = sequences_of(step) * double(writes_target ? step.target_tokens : step.tokens);
  const bool head_is_trained = step.trainable == step.parameters;
  return {.logits = step.keeps_logits || !step.fused
                        ? rows * shape.vocabulary * (narrow + 4)
                        : chunk_rows(rows, shape.vocabulary) * shape.vocabulary * narrow,
          .gradients = (head_is_trained ? shape.vocabulary * shape.hidden * narrow : 0) +
                       rows * shape.hidden * narrow};
}

// Gradients grow while activations are given back, so the peak is at the loss, in the first block
// that is computed again after it, or at the end of the backward pass.
void add_backward(MemoryTerms& terms, const PlannedStep& step, const ModelShape& shape,
                  double narrow, double wide) {
  const auto kept = kept_bytes(step, shape, narrow, wide);
  const auto loss = loss_bytes(step, shape, narrow);
  const double gradients = double(step.trainable) * (step.master_weights ? 2 : 4);
  // With accumulation those of the batches before are there all the time.
  const double lasting = step.accumulation > 1 ? gradients : 0;
  const double at_loss = kept.at_loss + loss.logits + loss.gradients;
  const double after_loss = kept.last > 0 ? kept.at_loss + kept.last + loss.gradients : 0;
  const double at_end = gradients + kept.first;
  terms.gradients = lasting;
  if (at_end > std::max(at_loss, after_loss) + lasting) {
    terms.gradients = gradients;
    terms.activations = at_end - gradients;
  } else if (after_loss > at_loss) {
    terms.activations = kept.at_loss + kept.last;
    terms.loss = loss.gradients;
  } else {
    terms.activations = kept.at_loss;
    terms.loss = loss.logits + loss.gradients;
  }
}

/// Whether more blocks could be computed again.
bool keeps_activations(const PlannedStep& step) {
  return !step.checkpointing || step.checkpointing->memory_budget > 0;
}

}  // namespace

// Bytes of state for a parameter. GaLore and APOLLO need less than is said here, by their rank;
// embeddings keep states of 32 bits.
double optimizer_state_bytes(const std::string& name) {
  static const std::map<std::string, double> kBytes = {{"sgd", 0},
                                                       {"lomo", 0},
                                                       {"adafactor", 0.1},
                                                       {"adalomo", 0.1},
                                                       {"galore_adafactor", 0.1},
                                                       {"galore_adafactor_layerwise", 0.1},
                                                       {"adagrad", 4},
                                                       {"rmsprop", 4},
                                                       {"rmsprop_bnb", 4},
                                                       {"rmsprop_bnb_32bit", 4},
                                                       {"rmsprop_bnb_8bit", 1},
                                                       {"lion_32bit", 4},
                                                       {"paged_lion_32bit", 4},
                                                       {"lion_8bit", 1},
                                                       {"paged_lion_8bit", 1},
                                                       {"ademamix", 12},
                                                       {"paged_ademamix_32bit", 12},
                                                       {"ademamix_8bit", 3},
                                                       {"paged_ademamix_8bit", 3},
                                                       {"grokadamw", 12},
                                                       {"adamw_torch_4bit", 1},
                                                       {"muon", 4},
                                                       {"schedule_free_sgd", 4}};
  const auto found = kBytes.find(name);
  if (found != kBytes.end()) return found->second;
  return name.find("8bit") == std::string::npos ? 8 : 2;
}

double MemoryTerms::total() const {
  return weights + masters + optimizer + gradients + activations + loss + other;
}

PlannedStep PlannedStep::of(Model& model, const TrainingArguments& args, int64_t tokens,
                            bool on_gpu) {
  PlannedStep step;
  step.config = model.config();
  std::set<const void*> counted;  // tied weights once
  for (const auto& parameter : model.parameters()) {
    if (!counted.insert(parameter.unsafeGetTensorImpl()).second) continue;
    step.parameters += parameter.numel();
    if (parameter.requires_grad()) step.trainable += parameter.numel();
    if (parameter.element_size() < 4) step.half += parameter.numel();
  }
  step.rows = args.train_batch_size();
  step.tokens = tokens;
  step.precision = args.mixed_precision();
  step.master_weights = step.precision == "bf16" &&
                        (args.bf16_mode == "master" || (args.bf16_mode == "auto" && on_gpu));
  step.checkpointing = GradientCheckpointing::of(args);
  step.accumulation = args.gradient_accumulation_steps;
  step.fused = on_gpu;
  step.optim = args.optim;
  return step;
}

bool knows_activations(const json& config) { return shape_of(config).has_value(); }

MemoryTerms plan_memory(const PlannedStep& step) {
  const auto shape = shape_of(step.config);
  if (!shape)
    throw Error("G-PLAN-1", ErrorKind::usage,
                fmt::format("the activations of the architecture '{}' are not known beforehand",
                            step.config.is_object() ? step.config.value("model_type", "?") : "?"),
                "Let gradus plan measure steps: --measure.");
  const double parameters = double(step.parameters), trainable = double(step.trainable);
  const bool half = step.precision != "no";
  const double narrow = half ? 2 : 4;
  const double wide = half && !step.master_weights ? 4 : narrow;
  MemoryTerms terms;
  const double full = parameters - double(step.half);  // in float32 outside of a run
  const bool frozen_wait = step.master_weights && trainable * 2 < parameters;
  terms.weights = 2 * double(step.half) + full * (step.master_weights ? 2 : 4);
  // Under autocast the weights of linear layers are kept in half precision for the time of a step.
  if (half && !step.master_weights) terms.weights += 2 * full;
  // Where most weights are frozen, their float32 values stay in host memory.
  terms.masters = step.master_weights ? 4 * (frozen_wait ? trainable : full) : 0;
  terms.optimizer = optimizer_state_bytes(step.optim) * trainable;
  add_backward(terms, step, *shape, narrow, wide);
  terms.other = 64e6 + sequences_of(step) * double(step.tokens) * 8 * 4;
  return terms;
}

int64_t largest_batch(PlannedStep step, double bytes) {
  const auto fits = [&](int64_t rows) {
    step.rows = rows;
    return plan_memory(step).total() <= bytes;
  };
  if (!fits(1)) return 0;
  int64_t low = 1, high = 2;
  while (high < (int64_t{1} << 30) && fits(high)) {
    low = high;
    high *= 2;
  }
  while (low + 1 < high) {
    const int64_t middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

std::vector<MemoryAdvice> memory_advice(PlannedStep step, double bytes) {
  std::vector<MemoryAdvice> advice;
  const auto fits = [&] { return plan_memory(step).total() <= bytes; };
  const auto take = [&](const std::string& flag, const std::string& cost) {
    advice.push_back({flag, plan_memory(step).total(), cost});
  };
  if (fits()) return advice;
  if (step.precision == "no") {
    step.precision = "bf16";
    step.master_weights = step.fused;
    take("--bf16", "half precision; also faster on a GPU");
  }
  if (!fits() && keeps_activations(step)) {
    // The largest budget that fits costs the least time.
    const double before = plan_memory(step).total();
    const auto most = step.checkpointing ? step.checkpointing->memory_budget : 1.0;
    step.checkpointing.emplace();
    for (int tenths = 9; tenths > 0; --tenths) {
      step.checkpointing->memory_budget = tenths / 10.0;
      if (tenths / 10.0 < most && fits()) break;
      step.checkpointing->memory_budget = 0;
    }
    if (const auto budget = step.checkpointing->memory_budget; budget > 0)
      take(fmt::format("--activation_memory_budget {}", budget),
           fmt::format("about {:.0f} % more time", 100.0 / 3 * (1 - budget)));
    else if (plan_memory(step).total() < before)
      take("--gradient_checkpointing", "about a third more time");
  }
  if (!fits() && step.rows > 1) {
    auto parts = step;
    parts.accumulation = std::max<int64_t>(step.accumulation, 2);
    parts.rows = std::max<int64_t>(largest_batch(parts, bytes), 1);
    if (plan_memory(parts).total() < plan_memory(step).total()) {
      parts.accumulation = step.accumulation * ((step.rows + parts.rows - 1) / parts.rows);
      step = parts;
      take(fmt::format("--per_device_train_batch_size {} --gradient_accumulation_steps {}",
                       step.rows, step.accumulation),
           "the same step in smaller parts");
    }
  }
  if (!fits() && optimizer_state_bytes(step.optim) > 2) {
    step.optim = "adamw_bnb_8bit";
    take("--optim adamw_bnb_8bit", "states of 8 bits: nearly the curve of AdamW");
  }
  if (!fits() && optimizer_state_bytes(step.optim) > 0.1) {
    step.optim = "adafactor";
    take("--optim adafactor", "another optimizer: another curve");
  }
  if (!fits() && step.trainable == step.parameters) {
    step.trainable = step.parameters / 100;
    take("--use_peft", "trains an adapter of about 1 % of the weights (trl's tasks)");
  }
  return advice;
}

}  // namespace gradus
