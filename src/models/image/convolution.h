#pragma once

#include <gradus/models/config_reader.h>
#include <torch/nn/module.h>

#include <array>
#include <cstdint>
#include <vector>

// Layers of image models. As those of layers/linear.h they have no values at first.
namespace gradus::layers {

struct ConvolutionOptions {
  int64_t in = 0, out = 0;
  std::array<int64_t, 2> kernel = {1, 1};
  std::array<int64_t, 2> stride = {1, 1};
  int64_t padding = 0;
  int64_t groups = 1;
  bool bias = true;
};

/// A convolution over (batch, channels, height, width).
class Convolution : public torch::nn::Module {
 public:
  explicit Convolution(const ConvolutionOptions& options);
  torch::Tensor forward(const torch::Tensor& x) const;

  torch::Tensor weight;  ///< (out, in / groups, height, width).
  torch::Tensor bias;    ///< (out); undefined without a bias.

 private:
  ConvolutionOptions options_;
};

/// Normalises each channel over a batch in training, with running means in evaluation.
class BatchNorm : public torch::nn::Module {
 public:
  explicit BatchNorm(int64_t channels);
  torch::Tensor forward(const torch::Tensor& x);

  torch::Tensor weight, bias;                                    ///< (channels).
  torch::Tensor running_mean, running_var, num_batches_tracked;  ///< Buffers.
};

}  // namespace gradus::layers

namespace gradus {

/// A list of sizes of a config.json, from 1 to `most` each. Throws G-MODEL-5.
std::vector<int64_t> sizes_in(const ConfigReader& read, const std::string& name,
                              std::vector<int64_t> fallback, int64_t most);
/// A size that is one number or a pair (height, width). Throws G-MODEL-5.
std::array<int64_t, 2> pair_in(const ConfigReader& read, const std::string& name, int64_t fallback);

}  // namespace gradus
