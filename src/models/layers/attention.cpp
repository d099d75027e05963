#include <gradus/core/error.h>
#include <gradus/models/layers/attention.h>
#include <gradus/models/layers/no_dropout.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

namespace gradus::layers {

using torch::Tensor;

namespace {

constexpr int64_t kCacheStep = 64;  // tokens by which the cache grows

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

/// Whether `rows` are all rows in their order; unknown (false) where looking would wait for a
/// device.
bool keeps_order(const Tensor& rows, int64_t count) {
  return rows.is_cpu() && rows.size(0) == count &&
         at::equal(rows, at::arange(count, rows.options()));
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

}  // namespace

Tensor masked_bias(const Tensor& bias, const AttentionMask& mask, torch::Dtype dtype) {
  const auto lowest = dtype == torch::kFloat ? std::numeric_limits<float>::lowest()
                      : dtype == torch::kHalf
                          ? -65504.0
                          : static_cast<double>(std::numeric_limits<c10::BFloat16>::lowest());
  auto allowed = mask.mask;
  if (mask.causal) {
    MaskRequest request;
    request.queries = bias.size(-2);
    request.keys = bias.size(-1);
    request.device = bias.device();
    allowed = mask_by_place(request);
  }
  if (!allowed.defined()) return bias;
  return allowed.scalar_type() == torch::kBool ? at::where(allowed, bias, bias.new_full({}, lowest))
                                               : bias + allowed;
}

AttentionMask make_attention_mask(const MaskRequest& request) {
  if (request.attention_mask.defined() && request.attention_mask.dim() == 4)
    return {request.attention_mask.to(request.device), false};
  Tensor padding;
  if (request.attention_mask.defined()) padding = checked_padding(request);
  if (padding.defined() && all_set(padding)) padding = Tensor();
  const bool windowed = request.sliding_window && request.keys >= *request.sliding_window;
  if (!windowed && !padding.defined() && !request.sequence_ids.defined()) {
    if (!request.causal || request.queries == 1) return {};
    if (request.queries == request.keys) return {{}, true};
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
  return {mask, false};
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
  Tensor output;
  const auto dropout = NoDropout::is_on() ? 0.0 : options.dropout;
  const auto bias = options.position_bias.defined()
                        ? masked_bias(options.position_bias, mask, key.scalar_type())
                        : Tensor();
  if (options.weights != nullptr) {
    const auto scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
    output =
        attention_with_weights(query, key, value, mask, bias, scale, dropout, *options.weights);
  } else {
    std::optional<Tensor> given;
    if (bias.defined())
      given = bias;
    else if (mask.mask.defined())
      given = mask.mask;
    output =
        at::scaled_dot_product_attention(query, key, value, given, dropout, mask.causal && !given,
                                         options.scale, query.size(1) != key.size(1));
  }
  return output.transpose(1, 2).reshape({query.size(0), query.size(2), -1});
}

KeyValueCache::States KeyValueCache::update(size_t layer, const Tensor& keys,
                                            const Tensor& values) {
  if (layer >= layers_.size()) layers_.resize(layer + 1);
  auto& held = layers_[layer];
  const auto added = keys.size(2), total = held.length + added;
  if (!held.keys.defined() || held.keys.size(2) < total) {
    const auto room = (total + kCacheStep + total / 2) / kCacheStep * kCacheStep;
    const auto grow = [&](const Tensor& old, const Tensor& like) {
      auto larger = at::empty({like.size(0), like.size(1), room, like.size(3)}, like.options());
      if (held.length > 0) larger.narrow(2, 0, held.length).copy_(old.narrow(2, 0, held.length));
      return larger;
    };
    held.keys = grow(held.keys, keys);
    held.values = grow(held.values, values);
  }
  held.keys.narrow(2, held.length, added).copy_(keys);
  held.values.narrow(2, held.length, added).copy_(values);
  held.length = total;
  return {held.keys.narrow(2, 0, total), held.values.narrow(2, 0, total)};
}

void KeyValueCache::select_rows(const Tensor& rows) {
  if (layers_.empty() || keeps_order(rows, layers_[0].keys.size(0))) return;
  for (auto& layer : layers_)
    for (auto* held : {&layer.keys, &layer.values}) {
      // Only what is written moves, into the memory of the layer before: the two take turns.
      auto sizes = held->sizes().vec();
      sizes[0] = rows.size(0);
      auto target = spare_.defined() && spare_.sizes() == at::IntArrayRef(sizes)
                        ? spare_
                        : at::empty(sizes, held->options());
      auto written = target.narrow(2, 0, layer.length);
      at::index_select_out(written, held->narrow(2, 0, layer.length), 0, rows);
      spare_ = std::exchange(*held, target);
    }
}

void KeyValueCache::select_cross(const Tensor& rows) {
  for (auto& states : cross_) {
    if (!states.keys.defined()) continue;
    states.keys = states.keys.index_select(0, rows);
    states.values = states.values.index_select(0, rows);
  }
}

void KeyValueCache::set_cross(size_t layer, States states) {
  if (layer >= cross_.size()) cross_.resize(layer + 1);
  cross_[layer] = std::move(states);
}

}  // namespace gradus::layers
