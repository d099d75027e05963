#include "models/wav2vec2/speech_config.h"

#include <gradus/models/config_reader.h>

#include <nlohmann/json.hpp>

namespace gradus {
namespace {

constexpr size_t kMostConvolutions = 64;

std::vector<int64_t> read_sizes(const ConfigReader& read, const char* name,
                                std::vector<int64_t> fallback) {
  const auto* values = read.find(name);
  if (values == nullptr) return fallback;
  const auto fits = [](const nlohmann::json& item) {
    return item.is_number_integer() && item.get<int64_t>() >= 1 &&
           item.get<int64_t>() <= int64_t{1} << 20;
  };
  if (!values->is_array() || values->empty() || values->size() > kMostConvolutions ||
      !std::all_of(values->begin(), values->end(), fits))
    read.fail(name, "a list of 1 to 64 positive numbers", values->dump().substr(0, 60));
  return values->get<std::vector<int64_t>>();
}

std::string read_choice(const ConfigReader& read, const char* name, const char* fallback,
                        std::initializer_list<const char*> choices) {
  const auto value = read.text(name, fallback);
  std::string expected;
  for (const auto* choice : choices) {
    if (value == choice) return value;
    expected += (expected.empty() ? "\"" : " or \"") + std::string(choice) + "\"";
  }
  read.fail(name, expected, value);
}

int64_t conv_length(int64_t length, int64_t kernel, int64_t stride) {
  const auto room = length - kernel;
  return (room >= 0 ? room / stride : -((-room + stride - 1) / stride)) + 1;
}

}  // namespace

SpeechConfig::SpeechConfig(const nlohmann::json& values, const SpeechFamily& which)
    : family(&which) {
  const ConfigReader read(values);
  vocabulary = read.integer("vocab_size", 32);
  width = read.integer("hidden_size", 768);
  blocks = read.integer("num_hidden_layers", 12, 1, 10000);
  heads = read.integer("num_attention_heads", 12);
  inner = read.integer("intermediate_size", 3072);
  activation = layers::activation_named(read.text("hidden_act", "gelu"));
  conv_activation = layers::activation_named(read.text("feat_extract_activation", "gelu"));
  hidden_dropout = read.probability("hidden_dropout", 0.1);
  activation_dropout = read.probability("activation_dropout", 0.1);
  attention_dropout = read.probability("attention_dropout", 0.1);
  projection_dropout = read.probability("feat_proj_dropout", 0.0);
  quantizer_dropout = read.probability("feat_quantizer_dropout", 0.0);
  final_dropout = read.probability("final_dropout", 0.1);
  layerdrop = read.probability("layerdrop", 0.1);
  norm_eps = read.number("layer_norm_eps", 1e-5, 0.0);
  is_group_norm = read_choice(read, "feat_extract_norm", "group", {"group", "layer"}) == "group";
  conv_bias = read.flag("conv_bias", false);
  stable_norm = read.flag("do_stable_layer_norm", false);
  spec_augment = read.flag("apply_spec_augment", true);
  conv_dim = read_sizes(read, "conv_dim", {512, 512, 512, 512, 512, 512, 512});
  conv_stride = read_sizes(read, "conv_stride", {5, 2, 2, 2, 2, 2, 2});
  conv_kernel = read_sizes(read, "conv_kernel", {10, 3, 3, 3, 3, 2, 2});
  if (conv_dim.size() != conv_stride.size() || conv_dim.size() != conv_kernel.size())
    read.fail("conv_dim", "as many numbers as conv_stride and conv_kernel",
              std::to_string(conv_dim.size()));
  positions = read.integer("num_conv_pos_embeddings", 128, 1, 1 << 16);
  position_groups = read.integer("num_conv_pos_embedding_groups", 16);
  position_batch_norm = read.flag("conv_pos_batch_norm", false);
  projection_norm = read.flag("feat_proj_layer_norm", true);
  mask_time_prob = read.probability("mask_time_prob", 0.05);
  mask_time_length = read.integer("mask_time_length", 10);
  mask_time_min_masks = read.integer("mask_time_min_masks", 2, 0);
  mask_feature_prob = read.probability("mask_feature_prob", 0.0);
  mask_feature_length = read.integer("mask_feature_length", 10);
  mask_feature_min_masks = read.integer("mask_feature_min_masks", 0, 0);
  codevectors = read.integer("num_codevectors_per_group", 320, 1, 1 << 20);
  codevector_groups = read.integer("num_codevector_groups", 2, 1, 1 << 10);
  codevector_dim = read.integer("codevector_dim", 256, 1, 1 << 20);
  projected_dim = read.integer("proj_codevector_dim", 256, 1, 1 << 20);
  contrastive_temperature = read.number("contrastive_logits_temperature", 0.1, 1e-12);
  diversity_weight = read.number("diversity_loss_weight", 0.1);
  ctc_reduction = read_choice(read, "ctc_loss_reduction", "sum", {"sum", "mean"});
  zero_infinity = read.flag("ctc_zero_infinity", false);
  weighted_layers = read.flag("use_weighted_layer_sum", false);
  classifier_width = read.integer("classifier_proj_size", 256);
  blank = read.integer("pad_token_id", 0, 0);
  has_adapter = read.flag("add_adapter", false);
  adapter_kernel = read.integer("adapter_kernel_size", 3, 1, 1 << 16);
  adapter_stride = read.integer("adapter_stride", 2, 1, 1 << 16);
  adapter_layers = read.integer("num_adapter_layers", 3, 1, 1000);
  output_width = read.optional_integer("output_hidden_size").value_or(width);
  if (!has_adapter) output_width = width;
  if (stable_norm) attention_adapter = read.optional_integer("adapter_attn_dim").value_or(0);
  if (width % heads != 0)
    read.fail("hidden_size", "a multiple of num_attention_heads (" + std::to_string(heads) + ")",
              std::to_string(width));
  if (width % position_groups != 0)
    read.fail("num_conv_pos_embedding_groups",
              "a divisor of hidden_size (" + std::to_string(width) + ")",
              std::to_string(position_groups));
}

int64_t SpeechConfig::frames(int64_t samples, bool with_adapter) const {
  for (size_t i = 0; i < conv_kernel.size(); ++i)
    samples = conv_length(samples, conv_kernel[i], conv_stride[i]);
  if (with_adapter && has_adapter)
    for (int64_t i = 0; i < adapter_layers; ++i) samples = conv_length(samples, 1, adapter_stride);
  return samples;
}

}  // namespace gradus
