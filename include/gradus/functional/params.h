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
/// A value: nothing in gradus changes a tensor that stands in one, and nor should you; make new
/// tensors and `with`. Copying is cheap: the names are shared, and so are the tensors' storages.
/// Thread-safety: as a `std::vector`.
class Params {
 public:
  Params() : Params({}, {}) {}
  /// Throws `Error` G-FN-3 when there are not as many names as tensors.
  Params(std::vector<std::string> names, std::vector<torch::Tensor> values);

  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  const std::vector<std::string>& names() const { return *names_; }
  const std::vector<torch::Tensor>& values() const { return values_; }

  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Null when absent.
  const torch::Tensor* find(std::string_view name) const;
  /// Throws G-FN-3 with the missing name.
  const torch::Tensor& operator[](std::string_view name) const;

  /// Other tensors under the same names, in the same order. Throws G-FN-3 when they are not as
  /// many.
  Params with(std::vector<torch::Tensor> values) const;
  /// Whether both have the same names in the same order.
  bool same_names(const Params& other) const {
    return names_ == other.names_ || *names_ == *other.names_;
  }

 private:
  std::shared_ptr<const std::vector<std::string>> names_;
  std::vector<torch::Tensor> values_;
};

/// As nested dictionaries, cut at the dots of the names: "encoder.layer.0.weight" is
/// tree["encoder"]["layer"]["0"]["weight"].
FlaxTree to_flax(const Params& params);

/// The tensors of nested dictionaries under the names, in the order, and with the dtypes and
/// devices of `like`. Throws G-FN-4 with the names that are missing, not expected, or of another
/// shape; `what` says whose tree it is.
Params from_flax(const FlaxTree& tree, const Params& like, const std::string& what);

}  // namespace gradus::functional
