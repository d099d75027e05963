#pragma once

#include <gradus/models/layers/linear.h>
#include <gradus/models/lora_config.h>

#include <map>
#include <memory>
#include <string>

namespace gradus {

/// The LoRA adapters of one layer. The layer owns it.
///
/// The trained matrices are registered below the layer under peft's names, "lora_A.default.weight"
/// and so on (for a table of embeddings "lora_embedding_A.default"), so that the parameters come in
/// peft's order.
class LoraLayer : public layers::LayerAdapter {
 public:
  /// One adapter of the layer.
  struct Part {
    std::shared_ptr<layers::Linear> a, b;
    torch::Tensor magnitude;  ///< DoRA; undefined without.
    double scaling = 1, dropout = 0;
    double own_scaling = 1;  ///< That of the config, before `set_scale`.
  };

  /// The adapters of `layer`, a Linear, a Conv1D or an Embedding: those it has, or none yet. Null
  /// for another kind of module.
  static std::shared_ptr<LoraLayer> of(torch::nn::Module& layer);

  /// Adds an adapter, or replaces it.
  void add(const std::string& name, const LoraConfig& config, int64_t rank, double alpha);
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& y) const override;
  std::optional<kernels::LowRank> low_rank() const override;
  bool draws() const override;

  void set_scale(const std::string& name, double scale);
  void merge(const std::string& name);
  void unmerge();
  /// Takes all adapters off the layer.
  void remove();

  const torch::Tensor& bias() const { return *bias_; }
  const torch::Tensor& weight() const { return weight_; }
  bool is_transposed() const { return transposed_; }
  /// Whether the layer is a table of embeddings. Its matrix A is a table of short rows.
  bool is_table() const { return table_ != nullptr; }

  std::map<std::string, Part> parts;
  std::string active;   ///< Only this one works.
  bool enabled = true;  ///< Whether it does.

 private:
  LoraLayer(torch::nn::Module& layer, torch::Tensor& weight, torch::Tensor* bias, bool transposed,
            std::shared_ptr<layers::LayerAdapter>& place);

  torch::Tensor out_in(const torch::Tensor& matrix) const {
    return transposed_ ? matrix.t() : matrix;
  }
  torch::Tensor delta(const Part& part) const;  ///< (out, in), scaled.
  torch::Tensor weight_norm(const torch::Tensor& delta) const;
  void init(Part& part, const LoraConfig& config, int64_t rank) const;
  void init_table(Part& part, const LoraConfig& config) const;
  torch::Tensor table_forward(const Part& part, const torch::Tensor& ids,
                              const torch::Tensor& y) const;
  torch::Tensor with_dora(const Part& part, const torch::Tensor& x, const torch::Tensor& y) const;

  torch::nn::Module& layer_;
  const layers::Embedding* table_;  ///< The layer, if it is a table of embeddings.
  torch::Tensor no_bias_;           ///< Stands for the bias of a table.
  torch::Tensor &weight_, *bias_;
  bool transposed_;
  std::shared_ptr<layers::LayerAdapter>& place_;  ///< Where the layer holds this object.
  std::string merged_;                            ///< The adapter that is in the weight.
  torch::Tensor merged_factor_;                   ///< DoRA: what the weight was multiplied by.
};

}  // namespace gradus
