#include <gradus/core/error.h>
#include <gradus/models/backbone.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace gradus {

using torch::Tensor;

namespace {

Tensor tensor_or_undefined(const Batch& inputs, const char* name) {
  const auto* found = inputs.find(name);
  return found == nullptr ? Tensor() : *found;
}

void check_shape(const Tensor& tensor, const char* name, const BackboneInputs& inputs) {
  if (!tensor.defined()) return;
  const bool fits = tensor.dim() == 2 && (tensor.size(0) == inputs.rows() || tensor.size(0) == 1) &&
                    tensor.size(1) == inputs.tokens();
  if (!fits)
    throw Error("G-MODEL-11", ErrorKind::model,
                fmt::format("{} has shape [{}], expected [{}, {}] like the tokens", name,
                            fmt::join(tensor.sizes(), ", "), inputs.rows(), inputs.tokens()),
                "Check the collator: every input of a batch must have the same rows and tokens.");
}

}  // namespace

nlohmann::json Backbone::memory() const { return nullptr; }
void Backbone::load_memory(const nlohmann::json&) {}

BackboneInputs backbone_inputs(const Batch& batch, const ForwardOptions& options) {
  BackboneInputs inputs;
  inputs.input_ids = tensor_or_undefined(batch, "input_ids");
  inputs.inputs_embeds = tensor_or_undefined(batch, "inputs_embeds");
  if (inputs.input_ids.defined() == inputs.inputs_embeds.defined())
    throw Error(
        "G-MODEL-11", ErrorKind::model,
        fmt::format("a model takes either input_ids or inputs_embeds; the batch holds {}",
                    batch.empty() ? "nothing" : fmt::format("{}", fmt::join(batch.names(), ", "))),
        "Check the collator, and that remove_unused_columns keeps what the model reads.");
  const auto dimensions = inputs.input_ids.defined() ? 2 : 3;
  const auto& given = inputs.input_ids.defined() ? inputs.input_ids : inputs.inputs_embeds;
  if (given.dim() != dimensions || given.numel() == 0)
    throw Error(
        "G-MODEL-11", ErrorKind::model,
        fmt::format("the tokens have shape [{}], expected [rows, tokens{}] and at least one token",
                    fmt::join(given.sizes(), ", "), dimensions == 3 ? ", width" : ""),
        "Make a batch of rows of one length; the collators pad to one.");
  inputs.attention_mask = needed_mask(batch, "attention_mask", inputs.rows(), inputs.tokens());
  inputs.position_ids = tensor_or_undefined(batch, "position_ids");
  inputs.token_type_ids = tensor_or_undefined(batch, "token_type_ids");
  check_shape(inputs.position_ids, "position_ids", inputs);
  check_shape(inputs.token_type_ids, "token_type_ids", inputs);
  inputs.sequence_ids = layers::packed_sequence_ids(batch, inputs.rows(), inputs.tokens());
  if (inputs.rows() == 1 && !inputs.attention_mask.defined()) {
    const auto starts = tensor_or_undefined(batch, "cu_seq_lens_q");
    if (starts.defined()) inputs.sequence_starts = starts.flatten().to(torch::kInt);
  }
  inputs.is_right_padded = batch.contains(kIsRightPadded);
  inputs.output_hidden_states = options.output_hidden_states;
  inputs.output_attentions = options.output_attentions;
  return inputs;
}

Tensor needed_mask(const Batch& inputs, const char* name, int64_t rows, int64_t tokens) {
  const auto* mask = inputs.find(name);
  if (mask == nullptr) return {};
  const bool fits = mask->defined() && mask->sizes() == at::IntArrayRef({rows, tokens});
  return fits && inputs.known_all_ones(name) ? Tensor() : *mask;
}

Tensor Backbone::embed(const BackboneInputs& inputs) {
  if (inputs.inputs_embeds.defined()) return inputs.inputs_embeds;
  const auto embeddings = input_embeddings().forward(inputs.input_ids);
  return embedding_noise && is_training() ? add_embedding_noise(embeddings, *embedding_noise)
                                          : embeddings;
}

bool Backbone::recomputes(size_t index, size_t blocks) const {
  return gradient_checkpointing && is_training() &&
         gradient_checkpointing->recomputes(static_cast<int64_t>(index),
                                            static_cast<int64_t>(blocks));
}

Tensor add_embedding_noise(const Tensor& embeddings, double alpha) {
  const auto size =
      alpha / std::sqrt(static_cast<double>(embeddings.size(-2) * embeddings.size(-1)));
  return embeddings + at::empty_like(embeddings).uniform_(-size, size);
}

Tensor running_positions(int64_t offset, int64_t tokens, torch::Device device) {
  return at::arange(offset, offset + tokens,
                    torch::TensorOptions().dtype(torch::kLong).device(device))
      .unsqueeze(0);
}

}  // namespace gradus
