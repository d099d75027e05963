#pragma once

#include <torch/nn/module.h>

#include <vector>

namespace gradus {

class Optimizer;

/// The float32 parameters of a module that may become bfloat16: not those of batch norms, whose
/// kernels want float32. Tied parameters come once.
std::vector<torch::Tensor> halvable_parameters(torch::nn::Module& module);

/// A module that computes in bfloat16 while float32 values of its parameters are trained.
///
/// From the constructor to the destructor the module's float32 parameters are bfloat16; their
/// former storage holds the masters. Parameters of batch norms stay float32: their kernels want
/// them so. The same parameter objects are used all along, so handles, ties and files stay as they
/// are. Frozen parameters are not trained, so on a GPU their float32 values wait in host memory,
/// where they also are while they are shown. Thread-safety: none.
class MasterWeights {
 public:
  /// Turns the parameters of `module`, which must live longer than this, into bfloat16 on `device`,
  /// where those that are trained lie already.
  explicit MasterWeights(torch::nn::Module& module, torch::Device device = torch::kCPU);
  /// The module gets its float32 values back, with the training in them; the optimizer its
  /// parameters.
  ~MasterWeights();
  MasterWeights(const MasterWeights&) = delete;
  MasterWeights& operator=(const MasterWeights&) = delete;

  /// Makes `optimizer`, built over the module's parameters, train the masters.
  /// The optimizer must outlive this object.
  void attach(Optimizer& optimizer);

  /// While one lives, the module's parameters are the masters: to save, average or change them.
  /// With `written`, the bfloat16 values are recomputed at its end. Does nothing for a null
  /// `masters`.
  class Shown {
   public:
    /// What is done with the weights while they are shown.
    enum class Use { read, written };
    /// Shows the masters until the end of the scope; does nothing for a null pointer.
    explicit Shown(MasterWeights* masters, Use use = Use::read) : masters_(masters), use_(use) {
      if (masters_ != nullptr) masters_->show();
    }
    ~Shown() {
      if (masters_ != nullptr) masters_->hide(use_ == Use::written);
    }
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;

   private:
    MasterWeights* masters_;
    Use use_;
  };

 private:
  /// Makes the parameters hold the masters.
  void show();
  /// Makes them hold the bfloat16 values, recomputed if `refresh` is set.
  void hide(bool refresh);

  torch::Device device_;
  std::vector<torch::Tensor> weights_;           // the module's parameters
  std::vector<torch::Tensor> masters_, halves_;  // their values in float32 and bfloat16
  Optimizer* optimizer_ = nullptr;
};

}  // namespace gradus
