#include <gradus/models/layers/attention.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace gradus::layers {

using torch::Tensor;

namespace {

constexpr int64_t kCacheStep = 64;  // tokens by which the cache grows

/// Whether `rows` are all rows in their order; unknown (false) where looking would wait for a
/// device.
bool keeps_order(const Tensor& rows, int64_t count) {
  return rows.is_cpu() && rows.size(0) == count &&
         at::equal(rows, at::arange(count, rows.options()));
}

/// (batch, tokens): every token in the row of its own sequence.
Tensor own_rows(int64_t batch, int64_t tokens) {
  return at::arange(batch, torch::TensorOptions().dtype(torch::kInt))
      .unsqueeze(1)
      .expand({batch, tokens});
}

}  // namespace

KeyValueCache::States KeyValueCache::update(size_t layer, const Tensor& keys,
                                            const Tensor& values) {
  if (place_.defined()) {
    const auto& held = layers_[layer];
    held.keys.index_copy_(2, place_, keys);
    held.values.index_copy_(2, place_, values);
    return {held.keys, held.values};
  }
  if (layer >= layers_.size()) layers_.resize(layer + 1);
  auto& held = layers_[layer];
  const auto batch = keys.size(0), added = keys.size(2), total = held.length + added;
  if (!held.keys.defined() || held.keys.size(2) < total || held.keys.size(0) < batch) {
    const auto room = (total + kCacheStep + total / 2) / kCacheStep * kCacheStep;
    const auto grow = [&](const Tensor& old, const Tensor& like) {
      const auto rows = old.defined() ? std::max(old.size(0), batch) : batch;
      auto larger = at::empty({rows, like.size(1), room, like.size(3)}, like.options());
      if (held.length > 0)
        larger.narrow(0, 0, old.size(0))
            .narrow(2, 0, held.length)
            .copy_(old.narrow(2, 0, held.length));
      return larger;
    };
    held.keys = grow(held.keys, keys);
    held.values = grow(held.values, values);
    if (rows_.defined() && rows_.size(1) < room)
      rows_ = at::cat({rows_, own_rows(batch, room - rows_.size(1))}, 1);
  }
  // A new token is written to the row of its own sequence, where none is at this place yet.
  held.keys.narrow(0, 0, batch).narrow(2, held.length, added).copy_(keys);
  held.values.narrow(0, 0, batch).narrow(2, held.length, added).copy_(values);
  held.length = total;
  return {held.keys.narrow(2, 0, total), held.values.narrow(2, 0, total),
          rows_.defined() ? rows_.narrow(1, 0, total) : Tensor()};
}

KeyValueCache KeyValueCache::fixed(int64_t room, const Tensor& place, const Tensor& rows) const {
  TORCH_INTERNAL_ASSERT(!rows_.defined(), "a cache of one token after another");
  KeyValueCache other;
  other.place_ = place;
  other.cross_ = cross_;
  for (const auto& layer : layers_) {
    // Zeros, because what the mask hides is still multiplied by 0.
    const auto copy = [&](const Tensor& held) {
      auto sizes = held.sizes().vec();
      if (rows.defined()) sizes[0] = rows.size(0);
      sizes[2] = room;
      auto larger = at::zeros(sizes, held.options());
      const auto written = std::min(place_.defined() ? held.size(2) : layer.length, room);
      const auto tokens = held.narrow(2, 0, written);
      larger.narrow(2, 0, written).copy_(rows.defined() ? tokens.index_select(0, rows) : tokens);
      return larger;
    };
    other.layers_.push_back({copy(layer.keys), copy(layer.values), room - 1});
  }
  return other;
}

void KeyValueCache::select_rows(const Tensor& rows) {
  if (layers_.empty()) return;
  const auto& first = layers_[0].keys;
  if (keeps_order(rows, rows_.defined() ? rows_.size(0) : first.size(0))) return;
  if (place_.defined())
    move_rows(rows);
  else if (rows.is_cpu() && first.is_cpu() && first.scalar_type() == torch::kFloat)
    point_to(rows);
  else
    copy_rows(rows);
}

void KeyValueCache::point_to(const Tensor& rows) {
  const auto batch = rows.size(0), room = layers_[0].keys.size(2), written = length();
  auto table = rows_.defined() ? rows_.index_select(0, rows)
                               : rows.to(torch::kInt).unsqueeze(1).expand({batch, room}).clone();
  table.narrow(1, written, room - written).copy_(own_rows(batch, room - written));
  rows_ = table;
}

void KeyValueCache::move_rows(const Tensor& rows) {
  for (auto& layer : layers_)
    for (auto* held : {&layer.keys, &layer.values}) {
      if (!spare_.defined()) spare_ = at::empty_like(*held);
      at::index_select_out(spare_, *held, 0, rows);
      held->copy_(spare_);
    }
}

void KeyValueCache::copy_rows(const Tensor& rows) {
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
