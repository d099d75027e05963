#pragma once

#include <gradus/optim/optimizer.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace gradus {

/// Names of the parameters weight decay applies to, transformers' `get_decay_parameter_names`: not
/// those inside layer norms (told by type, `torch::nn::LayerNorm` or a type named …LayerNorm or
/// …RMSNorm), nor those whose name has "bias", "layernorm", "rmsnorm", a part "norm" or a part
/// that ends in "_norm".
std::vector<std::string> decay_parameter_names(const torch::nn::Module& module);

/// The two groups of `Trainer.create_optimizer`: with `weight_decay`, and with none. The second may
/// be empty. Only parameters that require gradients, tied ones once under their first name, in the
/// order of `named_parameters`. Linear layers and embeddings are told by type,
/// `torch::nn::Linear` and `torch::nn::Embedding` or a type named Linear or Embedding.
std::vector<ParamGroupInit> decay_groups(const torch::nn::Module& module, double weight_decay);

/// The same parameters in one group that sets nothing.
std::vector<ParamGroupInit> all_in_one_group(const torch::nn::Module& module);

}  // namespace gradus
