#include <gradus/core/error.h>
#include <gradus/models/layers/attention.h>
#include <gradus/models/layers/linear.h>
#include <gradus/models/layers/no_dropout.h>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "models/layers/cached_attention.h"
#include "models/layers/dropout_mask.h"

namespace gradus::layers {

using torch::Tensor;

namespace {

/// Whether every entry is set; unknown (false) where looking would wait for a device.
bool all_set(const Tensor& mask) { return mask.is_cpu() && mask.all().item<bool>(); }

Tensor checked_padding(const MaskRequest& request) {
  const auto& given = request.attention_mask;
  if (given.dim() != 2 || given.size(0) != request.batch || given.size(1) < request.keys)
    throw Error("G-MODEL-11", ErrorKind::model,
                fmt::format("attention_mask has shape [{}], expected [{}, {}]",
                            fmt::join(given.sizes(), ", "), request.batch, request.keys),
                "Give one number per token: 1 for text, 0 for padding.");
  return given.narrow(1, 0, request.keys).to(request.device).to(torch::kBool);
}

/// Places of queries (rows) and keys (columns), and what may be seen by place alone; undefined when
/// everything may.
Tensor mask_by_place(const MaskRequest& request) {
  if (!request.causal && !request.sliding_window) return {};
  const auto options = torch::TensorOptions().dtype(torch::kLong).device(request.device);
  const auto query =
      (at::arange(request.queries, options) + (request.keys - request.queries)).unsqueeze(1);
  const auto key = at::arange(request.keys, options).unsqueeze(0);
  Tensor mask;
  if (request.causal) mask = key <= query;
  if (request.sliding_window) {
    auto window = key > query - *request.sliding_window;
    mask = mask.defined() ? mask.logical_and_(window)
                          : window.logical_and_(key < query + *request.sliding_window);
  }
  return mask.view({1, 1, request.queries, request.keys});
}

/// The same with the weights in hand, for output_attentions.
Tensor attention_with_weights(const Tensor& query, const Tensor& key, const Tensor& value,
                              const AttentionMask& mask, const Tensor& bias, double scale, double p,
                              Tensor& weights) {
  const auto groups = query.size(1) / key.size(1);
  const auto keys = groups == 1 ? key : key.repeat_interleave(groups, 1);
  const auto values = groups == 1 ? value : value.repeat_interleave(groups, 1);
  auto scores = query.matmul(keys.transpose(2, 3)) * scale;
  auto allowed = mask.mask;
  if (bias.defined()) {
    scores = scores + bias;
  } else {
    if (mask.causal) {
      MaskRequest request;
      request.queries = query.size(2);
      request.keys = key.size(2);
      request.device = query.device();
      allowed = mask_by_place(request);
    }
    if (allowed.defined())
      scores = allowed.scalar_type() == torch::kBool
                   ? scores.masked_fill(allowed.logical_not(), std::numeric_limits<float>::lowest())
                   : scores + allowed;
  }
  weights = scores.softmax(-1, torch::kFloat).to(query.scalar_type());
  return (p > 0.0 ? at::dropout(weights, p, true) : weights).matmul(values);
}

/// Whether a dropout of the weights goes through `attention_with_dropout`.
bool drops_weights_here(const Tensor& query, const Tensor& key, const std::optional<Tensor>& added,
                        double p) {
  return p > 0.0 && p < 1.0 && query.is_cpu() && query.scalar_type() == torch::kFloat &&
         key.scalar_type() == torch::kFloat && query.size(1) == key.size(1) &&
         (!added || added->scalar_type() == torch::kBool ||
          added->scalar_type() == torch::kFloat) &&
         dropout_mask_equals_aten();
}

/// scaled_dot_product_attention with dropout, in the operations that ATen composes it of on the
/// CPU, so that all bits are the same. Only the dropout is our own, which is faster.
Tensor attention_with_dropout(const Tensor& query, const Tensor& key, const Tensor& value,
                              std::optional<Tensor> added, bool causal, double scale, double p) {
  const auto factor = std::sqrt(scale);
  auto scores = at::matmul(query * factor, key.transpose(-2, -1) * factor);
  if (causal)
    added = at::ones({query.size(2), key.size(2)}, query.options().dtype(torch::kBool)).tril();
  if (added && added->scalar_type() == torch::kBool)
    added = at::zeros_like(*added, query.options())
                .masked_fill_(added->logical_not(), -std::numeric_limits<double>::infinity());
  if (added) scores.add_(*added);
  return at::matmul(layers::dropout(at::_safe_softmax(scores, -1), p, true), value);
}

/// Whether `single_query_attention` can be called: one query per sequence on a GPU, no gradients.
/// ATen's kernels for it want as many heads of keys as of queries wherever there is a mask.
bool is_single_query(const Tensor& query, const AttentionMask& mask,
                     const AttentionOptions& options) {
  const auto type = query.scalar_type();
  return query.is_cuda() && query.size(2) == 1 && !at::GradMode::is_enabled() &&
         options.weights == nullptr && !options.position_bias.defined() &&
         (type == torch::kBFloat16 || type == torch::kHalf) &&
         !at::autocast::is_autocast_enabled(at::kCUDA) && !mask.starts.defined() &&
         (!mask.mask.defined() || mask.mask.size(1) == 1);
}

/// (batch, heads, 1, width). Heads that share keys are rows of one product; scores are float32. A
/// query that sees nothing gets the mean of everything: a row of padding must not become NaN.
Tensor single_query_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                              const AttentionMask& mask, double scale) {
  const auto batch = query.size(0), shared = key.size(1), tokens = key.size(2),
             width = query.size(3), group = query.size(1) / shared;
  const auto by_key = [&](const Tensor& x, int64_t rows) {
    return x.reshape({batch * shared, rows, width});
  };
  const auto wide = query.options().dtype(torch::kFloat);
  if (mask.mask.defined() && !mask.added.defined())
    mask.added =
        mask.mask.scalar_type() == torch::kBool
            ? at::zeros(mask.mask.sizes(), wide)
                  .masked_fill_(mask.mask.logical_not(), std::numeric_limits<float>::lowest())
            : mask.mask.to(torch::kFloat);
  const auto added = mask.added.defined()
                         ? mask.added.expand({batch, shared, group, tokens})
                               .reshape({batch * shared, group, tokens})
                         : at::zeros({1, 1, 1}, wide).expand({batch * shared, group, tokens});
  const auto scores = at::baddbmm(added, by_key(query, group), by_key(key, tokens).transpose(1, 2),
                                  torch::kFloat, 1, scale);
  const auto weights = scores.softmax(-1).to(query.scalar_type());
  return at::bmm(weights, by_key(value, tokens)).view({batch, query.size(1), 1, width});
}

/// Causal attention by the flash kernel. Query, key and value are (batch, tokens, heads, width), or
/// (tokens, heads, width) where `mask` says where packed sequences start.
Tensor flash_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                       const AttentionMask& mask, double scale) {
  std::optional<Tensor> starts;
  if (mask.starts.defined()) starts = mask.starts;
  std::optional<int64_t> left, right;
  if (mask.window) {
    left = *mask.window - 1;
    right = 0;
  }
  // No packed sequence is longer than the row, whatever the host knows of them.
  const auto tokens = query.size(-3);
  return std::get<0>(at::_flash_attention_forward(
      query, key, value, starts, starts, tokens, tokens, /*dropout_p=*/0.0, /*is_causal=*/true,
      /*return_debug_mask=*/false, std::optional<double>(scale), left, right));
}

/// Whether the flash kernel takes hidden states like `x`, which are on a GPU, and this head width.
bool flash_fits(const Tensor& x, int64_t width) {
  const auto type = x.scalar_type();
  return x.is_cuda() && (type == torch::kBFloat16 || type == torch::kHalf) && width % 8 == 0 &&
         width <= 256 && !at::autocast::is_autocast_enabled(at::kCUDA);
}

/// Whether `learned_bias_attention` can be called. Without it ATen computes such an attention as
/// products and a softmax, in float32, and keeps the weights of every query and key.
bool learns_bias(const Tensor& query, const Tensor& key, const Tensor& bias) {
  return bias.defined() && bias.requires_grad() && at::GradMode::is_enabled() &&
         flash_fits(query, query.size(3)) && bias.scalar_type() == query.scalar_type() &&
         query.size(1) == key.size(1) && key.size(2) % 8 == 0 &&
         at::globalContext().userEnabledMemEfficientSDP();
}

/// Attention with a bias that has a gradient, by the kernel that computes it, too.
Tensor learned_bias_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                              const Tensor& bias, double scale, double p) {
  // The kernel wants keys side by side.
  const auto everywhere = (bias.stride(3) == 1 ? bias : bias.contiguous())
                              .expand({query.size(0), query.size(1), query.size(2), key.size(2)});
  return std::get<0>(at::_scaled_dot_product_efficient_attention(
      query, key, value, everywhere, /*compute_log_sumexp=*/true, p, /*is_causal=*/false, scale));
}

/// Attention inside the sequences that are packed into one row: (1, heads, tokens, width) each.
Tensor packed_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                        const AttentionMask& mask, double scale) {
  if (query.is_cuda()) {
    const auto by_token = [](const Tensor& x) { return x.squeeze(0).transpose(0, 1); };
    return flash_attention(by_token(query), by_token(key), by_token(value), mask, scale)
        .transpose(0, 1)
        .unsqueeze(0);
  }
  const auto& starts = mask.starts;
  const auto bounds = starts.to(torch::kLong).contiguous();
  const auto* bound = bounds.const_data_ptr<int64_t>();
  std::vector<Tensor> parts;
  for (int64_t i = 0; i + 1 < bounds.numel(); ++i) {
    const auto count = bound[i + 1] - bound[i];
    if (count == 0) continue;
    const auto part = [&](const Tensor& x) { return x.narrow(2, bound[i], count); };
    parts.push_back(at::scaled_dot_product_attention(part(query), part(key), part(value), {}, 0.0,
                                                     /*is_causal=*/true, scale,
                                                     query.size(1) != key.size(1)));
  }
  return at::cat(parts, 2);
}

}  // namespace

bool attention_takes_starts(const Tensor& x, int64_t width, double dropout) {
  if (dropout > 0.0 && !NoDropout::is_on()) return false;
  return x.is_cpu() || flash_fits(x, width);
}

bool attention_takes_window(const Tensor& x, int64_t width, double dropout) {
  return (dropout == 0.0 || NoDropout::is_on()) && flash_fits(x, width);
}

Tensor masked_bias(const Tensor& bias, const AttentionMask& mask, torch::Dtype dtype) {
  // Half of the lowest number: kernels for GPUs multiply it by log2(e), and a query that sees
  // nothing is to get the mean of everything, as with the lowest number on a CPU.
  const auto hidden = dtype == torch::kFloat ? std::numeric_limits<float>::lowest() / 2.0
                      : dtype == torch::kHalf
                          ? -65504.0 / 2.0
                          : double(std::numeric_limits<c10::BFloat16>::lowest()) / 2.0;
  auto allowed = mask.mask;
  if (mask.causal) {
    MaskRequest request;
    request.queries = bias.size(-2);
    request.keys = bias.size(-1);
    request.device = bias.device();
    allowed = mask_by_place(request);
  }
  if (!allowed.defined()) return bias;
  return allowed.scalar_type() == torch::kBool ? at::where(allowed, bias, bias.new_full({}, hidden))
                                               : bias + allowed;
}

AttentionMask make_attention_mask(const MaskRequest& request) {
  if (request.attention_mask.defined() && request.attention_mask.dim() == 4)
    return {.mask = request.attention_mask.to(request.device)};
  Tensor padding;
  if (request.attention_mask.defined()) padding = checked_padding(request);
  if (padding.defined() && all_set(padding)) padding = Tensor();
  const bool windowed = request.sliding_window && request.keys >= *request.sliding_window;
  const bool is_whole_row = request.batch == 1 && request.queries == request.keys;
  const bool by_number = !windowed || (request.takes_window && request.causal);
  const auto window = windowed ? request.sliding_window : std::nullopt;
  if (request.starts.defined() && request.causal && by_number && !padding.defined() && is_whole_row)
    return {.starts = request.starts, .window = window};
  if (windowed && by_number && !padding.defined() && !request.sequence_ids.defined() &&
      request.queries == request.keys)
    return {.causal = true, .window = window};
  if (!windowed && !padding.defined() && !request.sequence_ids.defined()) {
    if (!request.causal || request.queries == 1) return {};
    if (request.queries == request.keys) return {.causal = true};
  }
  auto place = request;
  if (!windowed) place.sliding_window.reset();
  auto mask = mask_by_place(place);
  if (request.sequence_ids.defined()) {
    const auto& ids = request.sequence_ids;
    const auto same = (ids.unsqueeze(2) == ids.unsqueeze(1)).unsqueeze(1);
    mask = mask.defined() ? mask.logical_and(same) : same;
  }
  if (padding.defined()) {
    const auto real = padding.unsqueeze(1).unsqueeze(1);
    mask = mask.defined() ? mask.logical_and(real)
                          : real.expand({request.batch, 1, request.queries, request.keys});
  }
  return {.mask = mask};
}

Tensor packed_sequence_ids(const Batch& inputs, int64_t batch, int64_t length) {
  if (const auto* ids = inputs.find("seq_idx")) return ids->dim() == 1 ? ids->unsqueeze(0) : *ids;
  if (const auto* starts = inputs.find("cu_seq_lens_q")) {
    const auto places = at::arange(length, starts->options());
    return torch::bucketize(places, starts->flatten(), /*out_int32=*/false, /*right=*/true)
        .unsqueeze(0);
  }
  const auto* positions = inputs.find("position_ids");
  if (positions == nullptr || positions->dim() != 2 || length < 2 ||
      inputs.contains("attention_mask"))
    return {};
  const auto jumps =
      (positions->narrow(1, 1, length - 1) - positions->narrow(1, 0, length - 1)).ne(1);
  if (jumps.is_cpu() && !jumps.any().item<bool>()) return {};
  auto ids = torch::constant_pad_nd(jumps.to(torch::kLong).cumsum(1), {1, 0}, 0);
  return ids.size(0) == batch ? ids : ids.expand({batch, length});
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                 const AttentionMask& mask, const AttentionOptions& options) {
  if (options.key_rows.defined()) {
    if (cached_attention_fits(query, key, value, options))
      return cached_attention(query, key, value, mask, options);
    auto plain = options;
    plain.key_rows = Tensor();
    return attention(query, gathered_rows(key, options.key_rows),
                     gathered_rows(value, options.key_rows), mask, plain);
  }
  Tensor output;
  const auto p = NoDropout::is_on() ? 0.0 : options.dropout;
  const auto scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  const auto bias = options.position_bias.defined()
                        ? masked_bias(options.position_bias, mask, key.scalar_type())
                        : Tensor();
  if (mask.starts.defined()) {
    output = packed_attention(query, key, value, mask, scale);
  } else if (mask.window) {
    const auto by_token = [](const Tensor& x) { return x.transpose(1, 2); };
    output = flash_attention(by_token(query), by_token(key), by_token(value), mask, scale)
                 .transpose(1, 2);
  } else if (is_single_query(query, mask, options)) {
    output = single_query_attention(query, key, value, mask, scale);
  } else if (options.weights != nullptr) {
    output = attention_with_weights(query, key, value, mask, bias, scale, p, *options.weights);
  } else if (learns_bias(query, key, bias)) {
    output = learned_bias_attention(query, key, value, bias, scale, p);
  } else {
    std::optional<Tensor> given;
    if (bias.defined())
      given = bias;
    else if (mask.mask.defined())
      given = mask.mask;
    const bool causal = mask.causal && !given;
    output = drops_weights_here(query, key, given, p)
                 ? attention_with_dropout(query, key, value, given, causal, scale, p)
                 : at::scaled_dot_product_attention(query, key, value, given, p, causal,
                                                    options.scale, query.size(1) != key.size(1));
  }
  return output.transpose(1, 2).reshape({query.size(0), query.size(2), -1});
}

}  // namespace gradus::layers
