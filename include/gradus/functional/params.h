#pragma once

#include <gradus/formats/flax_msgpack.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::functional {

/// Tensors by name: the parameters of a model, their gradients, an optimizer's moments.
///
/// It is a value: nothing in gradus changes a tensor that is part of one, and your code should not
/// either. Make new tensors and call `with`. Copying is cheap, because names and storages are
/// shared.
/// Thread-safety: as a `std::vector`.
class Params {
 public:
  Params() : Params({}, {}) {}
  /// Throws `Error` G-FN-3 when the numbers of names and tensors differ.
  Params(std::vector<std::string> names, std::vector<torch::Tensor> values);

  /// How many tensors there are.
  size_t size() const { return values_.size(); }
  /// Whether there are none.
  bool empty() const { return values_.empty(); }
  /// The names, in order.
  const std::vector<std::string>& names() const { return *names_; }
  /// The tensors, in the order of the names.
  const std::vector<torch::Tensor>& values() const { return values_; }

  /// Whether there is a tensor of that name.
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// The tensor of that name; null when there is none.
  const torch::Tensor* find(std::string_view name) const;
  /// The tensor of that name. Throws G-FN-3 when there is none.
  const torch::Tensor& operator[](std::string_view name) const;

  /// Other tensors under the same names, in the same order. Throws G-FN-3 when there are more or
  /// fewer.
  Params with(std::vector<torch::Tensor> values) const;
  /// Whether both have the same names in the same order.
  bool same_names(const Params& other) const {
    return names_ == other.names_ || *names_ == *other.names_;
  }

 private:
  std::shared_ptr<const std::vector<std::string>> names_;
  std::vector<torch::Tensor> values_;
};

/// The parameters as nested dictionaries. Names are split at their dots: "encoder.layer.0.weight"
/// becomes tree["encoder"]["layer"]["0"]["weight"].
FlaxTree to_flax(const Params& params);

/// The reverse: the tensors of nested dictionaries with the names, order, dtypes and devices of
/// `like`. Throws G-FN-4 with the names that are missing, unexpected or of another shape; `what`
/// names the tree in the message.
Params from_flax(const FlaxTree& tree, const Params& like, const std::string& what);

}  // namespace gradus::functional
