#pragma once

#include <gradus/functional/params.h>
#include <gradus/functional/transform.h>
#include <torch/nn/module.h>

#include <map>
#include <string>

namespace gradus::functional {

/// How the tensors of a model are named and laid out in Flax's files.
///
/// Flax calls the matrix of a dense layer "kernel" and stores it as (in, out), torch calls it
/// "weight" and stores it as (out, in). The scale of a layer norm and the rows of an embedding have
/// other names, too: "scale" and "embedding". Everything else is the same in both, which is how
/// transformers' Flax classes and its PyTorch classes exchange weights.
///
/// It is a value. Thread-safety: const members may be called from several threads.
class FlaxLayout {
 public:
  /// Files have the model's own names and shapes.
  FlaxLayout() = default;
  /// Files have those of Flax's classes, for the parameters of `module`.
  static FlaxLayout of(const torch::nn::Module& module);

  /// Parameters, or tensors like them, as files hold them. Nothing is copied.
  Params stored(const Params& params) const;
  /// The reverse. `like` has the names and their order.
  Params loaded(const Params& stored, const Params& like) const;
  /// The same of all sets of tensors in an optimizer's state.
  OptState stored(const OptState& state) const;
  /// The reverse.
  OptState loaded(const OptState& stored, const OptState& like) const;

 private:
  struct Place {
    std::string name;
    bool is_transposed = false;
  };
  std::map<std::string, Place> places_;  ///< by the model's name, where it differs
};

}  // namespace gradus::functional
