#include <gradus/functional/flax_layout.h>
#include <gradus/models/layers/linear.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>

namespace gradus::functional {
namespace {

template <class... Kinds>
bool is_one_of(const torch::nn::Module& module) {
  return ((dynamic_cast<const Kinds*>(&module) != nullptr) || ...);
}

}  // namespace

FlaxLayout FlaxLayout::of(const torch::nn::Module& root) {
  FlaxLayout layout;
  const auto visit = [&](const auto& self, const torch::nn::Module& module,
                         const std::string& path) -> void {
    const auto weight = path + "weight";
    if (is_one_of<layers::Linear, torch::nn::LinearImpl>(module))
      layout.places_[weight] = {path + "kernel", true};
    else if (is_one_of<layers::Embedding, torch::nn::EmbeddingImpl>(module))
      layout.places_[weight] = {path + "embedding", false};
    else if (is_one_of<torch::nn::LayerNormImpl>(module))
      layout.places_[weight] = {path + "scale", false};
    for (const auto& child : module.named_children())
      self(self, *child.value(), path + child.key() + ".");
  };
  visit(visit, root, "");
  return layout;
}

Params FlaxLayout::stored(const Params& params) const {
  auto names = params.names();
  auto values = params.values();
  for (size_t i = 0; i < names.size(); ++i) {
    const auto place = places_.find(names[i]);
    if (place == places_.end()) continue;
    names[i] = place->second.name;
    if (place->second.is_transposed && values[i].dim() == 2) values[i] = values[i].t();
  }
  return {std::move(names), std::move(values)};
}

Params FlaxLayout::loaded(const Params& stored, const Params& like) const {
  std::vector<torch::Tensor> values;
  for (const auto& name : like.names()) {
    const auto place = places_.find(name);
    const bool is_moved = place != places_.end();
    const auto& value = stored[is_moved ? place->second.name : name];
    values.push_back(is_moved && place->second.is_transposed && value.dim() == 2
                         ? value.t().contiguous()
                         : value);
  }
  return like.with(std::move(values));
}

OptState FlaxLayout::stored(const OptState& state) const {
  OptState result;
  for (const auto& field : state.fields) {
    auto copy = field;
    if (const auto* params = std::get_if<Params>(&field.value)) copy.value = stored(*params);
    if (const auto* inner = std::get_if<OptState>(&field.value)) copy.value = stored(*inner);
    result.fields.push_back(std::move(copy));
  }
  return result;
}

OptState FlaxLayout::loaded(const OptState& stored, const OptState& like) const {
  OptState result;
  for (const auto& field : like.fields) {
    auto copy = field;
    if (const auto* params = std::get_if<Params>(&field.value))
      copy.value = loaded(stored.params(field.name), *params);
    else if (const auto* inner = std::get_if<OptState>(&field.value))
      copy.value = loaded(stored.inner(field.name), *inner);
    else
      copy.value = stored.tensor(field.name);
    result.fields.push_back(std::move(copy));
  }
  return result;
}

}  // namespace gradus::functional
