#pragma once

#include <gradus/core/state_tree.h>
#include <gradus/optim/optim_args.h>
#include <gradus/optim/projection.h>
#include <torch/types.h>

#include <utility>
#include <vector>

namespace gradus {

/// The projection of a matrix's gradients. Its bases are kept as two slots of the optimizer, of
/// which one or both are in use: `left` of shape (rows, rank) and `right` of shape (rank, columns).
class GradientProjector {
 public:
  /// Where the bases come from: the gradient's singular vectors, or chance.
  enum class Source { svd, random };

  /// Throws `Error` G-OPTIM-1 for settings that cannot be used; `optimizer` is for the message.
  GradientProjector(ProjectionOptions options, Source source, const std::string& optimizer);

  /// Whether a step with this number, from 1, begins with new bases.
  bool is_due(int64_t step) const { return (step - 1) % options_.update_proj_gap == 0; }
  /// Bases for a parameter, in its type, without values.
  std::pair<torch::Tensor, torch::Tensor> make_bases(const torch::Tensor& param) const;
  /// The shape of its projected gradients.
  std::vector<int64_t> projected_sizes(at::IntArrayRef sizes) const;

  /// Makes the bases the singular vectors of `grad`. A GPU's solver waits for the device.
  void fit(const torch::Tensor& grad, const torch::Tensor& left, const torch::Tensor& right) const;
  /// Makes them random: APOLLO's numbers for the parameter with this `seed` at this step.
  void draw(int64_t seed, int64_t step, const torch::Tensor& left,
            const torch::Tensor& right) const;

  const ProjectionOptions& options() const { return options_; }

 private:
  bool has_left(at::IntArrayRef sizes) const;
  bool has_right(at::IntArrayRef sizes) const;
  int64_t rank_of(at::IntArrayRef sizes) const;

  ProjectionOptions options_;
  Source source_;
};

/// Multiplies with the bases that are defined.
torch::Tensor project(const torch::Tensor& grad, const torch::Tensor& left,
                      const torch::Tensor& right);
/// The way back, without the scale.
torch::Tensor project_back(const torch::Tensor& low, const torch::Tensor& left,
                           const torch::Tensor& right);

/// Reads rank, update_proj_gap, scale and proj_type of `--optim_args`.
void read_projection(const OptimArgs& extra, ProjectionOptions& options);

/// Writes the last three into the settings of a group.
void set_projection(StateTree& group, const ProjectionOptions& options);
/// Takes what a file has of all four.
void take_projection(const StateTree& group, ProjectionOptions& options);

/// The tensor of a slot that some parameters do not use.
inline torch::Tensor slot_or_none(const std::vector<std::vector<torch::Tensor>>& slots, size_t k,
                                  size_t i) {
  return slots[k].empty() ? torch::Tensor() : slots[k][i];
}

}  // namespace gradus
